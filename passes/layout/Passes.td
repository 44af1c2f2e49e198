//===- Passes.td - the layout phase's passes ----------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_LAYOUT
#define GRIDLOOM_PASSES_LAYOUT

include "mlir/Pass/PassBase.td"

def AssignLayouts : Pass<"loom-assign-layouts", "::mlir::ModuleOp"> {
  let summary = "Gives every weight a physical layout";
  let description = [{
    A weight that is read only as the row-major right-hand side of f32 matrix multiplications gets
    `pad-elements` elements after each row when its rows are a multiple of `pad-multiple` long: rows
    a power of two apart share cache sets, and sgemm runs at half speed for few rows of the left-hand
    side. Every other weight is dense and row-major. A plan has one layout per weight and sharding,
    so all specialisations and stages decide together.

    Input:

    ```mlir
    %w = loom.get_weight @w : tensor<768x3072xf32>
    %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : ...
    ```

    Output:

    ```mlir
    %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<768x3072xf32>
    ```
  }];
  let options = [
    Option<"padMultiple", "pad-multiple", "int64_t", "256", "pad rows whose length is a multiple of this; 0 pads none">,
    Option<"padElements", "pad-elements", "int64_t", "16", "elements after each padded row">];
}

def VerifyLayouts : Pass<"loom-verify-layouts", "::mlir::ModuleOp"> {
  let summary = "Checks that every weight has a layout, the same wherever it is read";
  let description = [{
    Guarantees after the phase: every `loom.get_weight` has a layout whose order is a permutation of
    its dimensions; one weight and sharding has one layout; a padded weight feeds matrix
    multiplications only.

    Input and output are the same.

    ```mlir
    %w = loom.get_weight @w {layout = #loom.layout<[0, 1]>} : tensor<8x16xf32>
    ```
  }];
}

#endif
