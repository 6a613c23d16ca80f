pytest_plugins = ["tests.browser"]
