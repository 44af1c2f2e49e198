//===- LoomAttrs.td - attributes ----------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_ATTRS
#define GRIDLOOM_LOOM_ATTRS

include "mlir/IR/AttrTypeBase.td"
include "dialects/loom/LoomDialect.td"

def Loom_LayoutAttr : AttrDef<LoomDialect, "Layout"> {
  let mnemonic = "layout";
  let summary = "A physical layout";
  let description = [{
    `order` lists the dimensions from major to minor in memory. `pad` elements follow each row of the
    minor dimension (a leading dimension of n + pad).

    ```mlir
    #loom.layout<[0, 1]>           // row-major
    #loom.layout<[0, 1], pad = 16> // rows of n + 16 elements
    ```
  }];
  let parameters = (ins OptionalArrayRefParameter<"int64_t">:$order, DefaultValuedParameter<"int64_t", "0">:$pad);
  let assemblyFormat = "`<` `[` (`]`) : ($order^ `]`)? (`,` `pad` `=` $pad^)? `>`";
}

def Loom_SourceAttr : AttrDef<LoomDialect, "Source"> {
  let mnemonic = "source";
  let summary = "Where a weight's bytes are";
  let description = [{
    `file` is relative to the model's folder; an empty name is the model file itself.

    ```mlir
    #loom.source<"weights.bin", offset = 1024, bytes = 589824>
    ```
  }];
  let parameters = (ins StringRefParameter<>:$file, "uint64_t":$offset, "uint64_t":$bytes);
  let assemblyFormat = "`<` $file `,` `offset` `=` $offset `,` `bytes` `=` $bytes `>`";
}

#endif
