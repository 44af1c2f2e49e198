//===- LoomControl.td - loops and branches ------------------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_CONTROL
#define GRIDLOOM_LOOM_CONTROL

include "dialects/loom/LoomBase.td"

// Bodies are functions of the module that one operation names; see docs/design/0007. Passes that work
// function by function so work in bodies too.
class Loom_ControlOp<string mnemonic, list<Trait> traits = []>
    : Op<LoomDialect, mnemonic, !listconcat(traits, [Pure,
        DeclareOpInterfaceMethods<SymbolUserOpInterface>,
        DeclareOpInterfaceMethods<ShardingRuleInterface, ["getShardingRule"]>,
        DeclareOpInterfaceMethods<CostInterface, ["getFlops", "getMemoryBytes"]>])>;

def Loom_WhileOp : Loom_ControlOp<"while", [AttrSizedOperandSegments]> {
  let summary = "Runs a function on carried values while its condition holds";
  let description = [{
    While `condition` is true: `condition, carried... = body(carried..., captures...)`. The results are
    the carried values in the end. `trips` is how often the body runs at most; it is for costs.

    ```mlir
    %r:2 = loom.while @main_loop if %c carry %i, %x read %w trips = 8
        : (tensor<i1>, tensor<i64>, tensor<4xf32>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)
    ```

    **Constraints:**
    - L-WH1: `body` is a function of the module with attribute `loom.body`, which takes the carried
      values and the captures and returns the condition and the carried values.
    - L-WH2: the condition is a tensor<i1>; the carried values have the results' types.
  }];
  let arguments = (ins FlatSymbolRefAttr:$body, Loom_BoolTensor:$condition, Variadic<Loom_Tensor>:$inits,
      Variadic<Loom_Tensor>:$captures, OptionalAttr<I64Attr>:$trips);
  let results = (outs Variadic<Loom_Tensor>:$results);
  let assemblyFormat = [{$body `if` $condition (`carry` $inits^)? (`read` $captures^)? (`trips` `=` $trips^)?
      attr-dict `:` functional-type(operands, results)}];
}

def Loom_IfOp : Loom_ControlOp<"if"> {
  let summary = "Runs one of two functions";
  let description = [{
    ```mlir
    %r = loom.if %c then @main_then else @main_else read %x : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
    ```

    **Constraints:**
    - L-IF1: both are functions of the module with attribute `loom.body`, which take the captures and
      return the results.
    - L-IF2: the condition is a tensor<i1>.
  }];
  let arguments = (ins FlatSymbolRefAttr:$then_body, FlatSymbolRefAttr:$else_body, Loom_BoolTensor:$condition,
      Variadic<Loom_Tensor>:$captures);
  let results = (outs Variadic<Loom_Tensor>:$results);
  let assemblyFormat = [{$condition `then` $then_body `else` $else_body (`read` $captures^)?
      attr-dict `:` functional-type(operands, results)}];
}

#endif
