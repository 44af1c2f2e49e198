//===- LoomWeights.td - weights and the prologue ------------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_WEIGHTS
#define GRIDLOOM_LOOM_WEIGHTS

include "dialects/loom/LoomBase.td"

def Loom_WeightOp : Op<LoomDialect, "weight", [Symbol]> {
  let summary = "A weight that stays in its file";
  let description = [{
    Plans refer to the file; the runtime reads the bytes when it loads a plan.

    ```mlir
    loom.weight @"encoder.q" : tensor<384x384xf32> from <"", offset = 1024, bytes = 589824>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$type, Loom_SourceAttr:$source);
  let assemblyFormat = "$sym_name `:` $type `from` $source attr-dict";
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() { return ::llvm::cast<::mlir::RankedTensorType>(getType()); }
  }];
}

def Loom_DerivedOp : Op<LoomDialect, "derived", [Symbol, IsolatedFromAbove, SingleBlock]> {
  let summary = "A tensor computed from weights alone: the prologue, run once at load";
  let description = [{
    The body reads weights and other derived tensors by `loom.get_weight` and yields one tensor.

    ```mlir
    loom.weight @position : tensor<512x384xf32> from <"", offset = 0, bytes = 786432>
    loom.derived @"position.slice" : tensor<16x384xf32> {
      %0 = loom.get_weight @position : tensor<512x384xf32>
      %1 = loom.slice %0 [0, 0] to [16, 384] by [1, 1] : (tensor<512x384xf32>) -> tensor<16x384xf32>
      loom.yield %1 : tensor<16x384xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$type);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `:` $type $body attr-dict";
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() { return ::llvm::cast<::mlir::RankedTensorType>(getType()); }
  }];
}

def Loom_GetWeightOp : Loom_Op<"get_weight", [DeclareOpInterfaceMethods<SymbolUserOpInterface>], ["partition"], ["getFlops"]> {
  let summary = "The value of a weight or derived tensor";
  let description = [{
    After partitioning the type is the local shard's, and `sharding` says which part of the symbol's global tensor
    it is. The layout phase sets `layout`.

    ```mlir
    loom.weight @w : tensor<384x384xf32> from <"", offset = 0, bytes = 589824>
    %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<384x384xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$name, OptionalAttr<AnyAttr>:$sharding, OptionalAttr<Loom_LayoutAttr>:$layout);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$name attr-dict `:` type($output)";
}

def Loom_YieldOp : Op<LoomDialect, "yield", [Pure, Terminator, ReturnLike]> {
  let summary = "Ends the body of a derived tensor or a kernel";
  let description = [{
    Its operands are the results of the body.

    ```mlir
    plan.kernel @negate {
    ^bb0(%x: tensor<4xf32>):
      %0 = loom.negate %x : tensor<4xf32>
      loom.yield %0 : tensor<4xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$results attr-dict `:` type($results)";
}

#endif
