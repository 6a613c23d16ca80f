from pipelines.cli import main

main(prog_name="recover")
