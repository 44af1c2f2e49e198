"""Random ONNX models on random meshes, compared with ONNX Runtime; see `__main__.py` for the command line.

`recipes`, `moves`, `layers` and `contrib` are the table of operators, `graph` grows a model node by node on concrete
values, `cases` draws what a model is compiled for and compares, `shrink` makes a failing case small, `runner` runs
many."""
