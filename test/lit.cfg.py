"""lit set-up: every .mlir below this folder is a shell test run with FileCheck."""

import os

import lit.formats

config.name = "Gridloom"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = config.gridloom_obj_root
config.environment["PATH"] = os.pathsep.join(
    [config.gridloom_tools_dir, config.llvm_tools_dir, config.environment.get("PATH", "")]
)
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --dump-input-filter=all"
config.substitutions.append(("%python", config.python or "python3"))
config.substitutions.append(("%src", config.gridloom_src_root))
# %zoo writes a model of the zoo.
config.substitutions.append(
    ("%zoo", f"env PYTHONPATH={config.gridloom_src_root}/python {config.python or 'python3'} -m gridloom.zoo")
)
