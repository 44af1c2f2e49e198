//===- Passes.td - derivatives ------------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_DIFFERENTIATE
#define GRIDLOOM_PASSES_DIFFERENTIATE

include "mlir/Pass/PassBase.td"

def Differentiate : Pass<"loom-differentiate", "::mlir::ModuleOp"> {
  let summary = "Adds the gradients of an output as further outputs";
  let description = [{
    The gradient of the sum of all elements of output `of`, with respect to each float weight that it
    depends on, becomes output NAME.grad of every entry: reverse mode (Griewank and Walther 2008, section 3.2),
    where each operation adds what its DerivativeInterface says to the cotangents of its operands.
    The operations are located at NODE.grad for those of ONNX node NODE. A weight that several
    operations read has one gradient, the sum.

    `with-respect-to` lists names of weights and float inputs instead, a star for any text.

    ```mlir
    func.func @main(%x: tensor<2x4xf32>) -> (tensor<2xf32> {loom.name = "loss"}) {
      %w = loom.get_weight @w : tensor<4xf32>
      %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] ... -> tensor<2xf32>
      return %y : tensor<2xf32>
    ```
    becomes
    ```mlir
    func.func @main(%x: tensor<2x4xf32>) -> (tensor<2xf32> {loom.name = "loss"},
                                             tensor<4xf32> {loom.name = "w.grad"}) {
      %w = loom.get_weight @w : tensor<4xf32>
      %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] ... -> tensor<2xf32>
      %0 = loom.constant dense<1.0> : tensor<2xf32>
      %1 = loom.dot_general %0, %x batch = [] x [] contract = [0] x [0] ... -> tensor<4xf32>
      return %y, %1 : tensor<2xf32>, tensor<4xf32>
    ```

    Where a maximum or minimum has equal operands, each gets half of the cotangent, or all of it goes to
    the one that attribute `loom.ties` names, `lhs` or `rhs`: Relu's derivative at 0 is 0, Clip's at its
    bounds is 1. Loops and branches, and what has no pullback, are refused by the node's name.
  }];
  let options = [
    Option<"of", "of", "std::string", "\"\"", "output that is differentiated">,
    ListOption<"withRespectTo", "with-respect-to", "std::string",
      "weights and inputs, a star for any text; default: all float weights">];
}

#endif
