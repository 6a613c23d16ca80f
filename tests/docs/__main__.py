"""Write the generated pages: python -m tests.docs"""

from tests.docs.pages import GENERATED

for path, page in GENERATED.items():
    path.write_text(page(), encoding="utf-8")
    print(path)
