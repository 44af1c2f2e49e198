//===- LoomControl.td - loops and branches ------------------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_CONTROL
#define GRIDLOOM_LOOM_CONTROL

include "dialects/loom/LoomBase.td"

// Bodies are functions of the module, each named by one operation (docs/design/0007), so that passes over
// functions reach them too.
class Loom_ControlOp<string mnemonic, list<Trait> traits = []>
    : Op<LoomDialect, mnemonic, !listconcat(traits, [Pure,
        DeclareOpInterfaceMethods<SymbolUserOpInterface>,
        DeclareOpInterfaceMethods<ShardingRuleInterface, ["getShardingRule"]>])>;

def Loom_WhileOp : Loom_ControlOp<"while", [AttrSizedOperandSegments]> {
  let summary = "Runs a function on carried values while its condition holds";
  let description = [{
    While `condition` is true: `condition, carried... = body(carried..., captures...)`. The results are the carried
    values at the end. `trips` is an upper bound on the number of iterations, used for cost estimates.

    ```mlir
    %r:2 = loom.while @main_loop if %c carry %i, %x read %w trips = 8
        : (tensor<i1>, tensor<i64>, tensor<4xf32>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)

    func.func @main_loop(%arg0: tensor<i64>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>)
        -> (tensor<i1>, tensor<i64>, tensor<4xf32>) attributes {loom.body} {
      %one = loom.constant dense<1> : tensor<i64>
      %limit = loom.constant dense<8> : tensor<i64>
      %next = loom.add %arg0, %one : tensor<i64>
      %more = loom.compare lt %next, %limit : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %sum = loom.add %arg1, %arg2 : tensor<4xf32>
      return %more, %next, %sum : tensor<i1>, tensor<i64>, tensor<4xf32>
    }
    ```

    **Constraints:**
    - L-WH1: `body` is a function of the module with attribute `loom.body`, which takes the carried values and the
      captures and returns the condition and the carried values.
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
    Only the chosen function runs; both receive the captures.

    ```mlir
    %r = loom.if %c then @main_then else @main_else read %x : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>

    func.func @main_then(%arg0: tensor<4xf32>) -> tensor<4xf32> attributes {loom.body} {
      return %arg0 : tensor<4xf32>
    }
    func.func @main_else(%arg0: tensor<4xf32>) -> tensor<4xf32> attributes {loom.body} {
      %0 = loom.negate %arg0 : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```

    **Constraints:**
    - L-IF1: both are functions of the module with attribute `loom.body`, which take the captures and return the
      results.
    - L-IF2: the condition is a tensor<i1>.
  }];
  let arguments = (ins FlatSymbolRefAttr:$then_body, FlatSymbolRefAttr:$else_body, Loom_BoolTensor:$condition,
      Variadic<Loom_Tensor>:$captures);
  let results = (outs Variadic<Loom_Tensor>:$results);
  let assemblyFormat = [{$condition `then` $then_body `else` $else_body (`read` $captures^)?
      attr-dict `:` functional-type(operands, results)}];
}

#endif
