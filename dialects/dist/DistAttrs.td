//===- DistAttrs.td - attributes ----------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_DIST_ATTRS
#define GRIDLOOM_DIST_ATTRS

include "mlir/IR/AttrTypeBase.td"
include "dialects/dist/DistDialect.td"
include "dialects/dist/DistEnums.td"

class DistAttr<string name, string attrMnemonic> : AttrDef<DistDialect, name> {
  let mnemonic = attrMnemonic;
}

def Dist_AxisAttr : DistAttr<"Axis", "axis"> {
  let summary = "A named mesh axis and its size";
  let description = [{
    ```mlir
    #dist.axis<"data" = 2>
    ```
  }];
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$size);
  let assemblyFormat = "`<` $name `=` $size `>`";
}

def Dist_DimShardingAttr : DistAttr<"DimSharding", "dim"> {
  let summary = "How one dimension of a tensor, or one factor of an operation, is split";
  let description = [{
    `axes` lists mesh axes from major to minor: the dimension is cut over the first axis, each piece
    over the second, and so on. Propagation may add axes to an open dimension, not to a closed one.
    Cuts fall only on multiples of `granule` elements (a head of 64 columns is a granule of 64).
  }];
  let parameters = (ins OptionalArrayRefParameter<"::mlir::StringAttr">:$axes,
      DefaultValuedParameter<"bool", "false">:$open, DefaultValuedParameter<"int64_t", "1">:$granule);
  let hasCustomAssemblyFormat = 1;
}

def Dist_ShardingAttr : DistAttr<"Sharding", "sharding"> {
  let summary = "How a tensor is split or replicated over a mesh";
  let description = [{
    One entry per dimension lists the axes that split it; `?` leaves it open and `* n` sets its granule.

    ```mlir
    #dist.sharding<@mesh, [{"data"}, {}, {"model", ?} ], unreduced = {"pipe" = sum}>
    #dist.sharding<@mesh, [{"data"}, {"model"} * 64 ]>
    ```

    The tensor is replicated over axes that the sharding does not name. Over an `unreduced` axis every device holds a partial
    value; the tensor is their reduction.

    **Constraints:**
    - D-C1: the number of dimensions equals the tensor's rank.
    - D-C2: every axis is an axis of the mesh.
    - D-C3: an axis appears at most once, in the dimensions and the unreduced axes together.
    - D-C4: granules are at least 1.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$mesh,
      OptionalArrayRefParameter<"::gridloom::dist::DimShardingAttr">:$dims,
      OptionalArrayRefParameter<"::mlir::StringAttr">:$unreduced,
      DefaultValuedParameter<"::gridloom::dist::ReductionKind",
                             "::gridloom::dist::ReductionKind::Sum">:$reduction);
  let hasCustomAssemblyFormat = 1;
}

def Dist_SplitsAttr : DistAttr<"Splits", "splits"> {
  let summary = "How an operation's work is split over a mesh";
  let description = [{
    One entry per factor of the operation's sharding rule lists the axes that split it, major to minor; `* n` sets the
    granule of its cuts. Over an `unreduced` axis operands stay partial sums, and so does the result.

    ```mlir
    #dist.splits<[{"data"}, {}, {"model"} ]>
    #dist.splits<[{"data"}, {"model"} * 64], unreduced = {"expert"}>
    ```

    The rule numbers the factors: those of a product of matrices are its batch dimensions, rows, columns and what is contracted;
    an elementwise operation's are its dimensions.

    **Constraints:**
    - D-SP1: one entry for each factor.
    - D-SP2: every axis is an axis of the mesh, and not the one of the pipeline's stages.
    - D-SP3: an axis appears at most once, among factors that a tensor joins and the unreduced axes.
    - D-SP4: a factor that every device needs whole is not split.
    - D-SP5: granules are at least 1.
    - D-SP6: a factor that is split lies in no dimension under another, unless that is cut evenly down to single elements.
    - D-SP7: the axis of micro-batches is minor to all others, and splits no factor along which positions need each other.
    - D-SP8: only a linear operation leaves its operands unreduced.
  }];
  let parameters = (ins OptionalArrayRefParameter<"::gridloom::dist::DimShardingAttr">:$factors,
      OptionalArrayRefParameter<"::mlir::StringAttr">:$unreduced);
  let hasCustomAssemblyFormat = 1;
}

def Dist_OriginAttr : DistAttr<"Origin", "origin"> {
  let summary = "Where a sharding comes from";
  let description = [{
    Example:

    ```mlir
    #dist.origin<"user">
    #dist.origin<"data" = "strategy dp: batch", "micro" = "micro-batches">
    #dist.origin<replicated = "split by columns over 'model', its product would be gathered" tried "model">
    ```

    Either who asked for all of it (`given`), or who brought in each axis, and why no device axis splits the
    value: `replicated`, with the axis that a strategy `tried`.
  }];
  let parameters = (ins OptionalParameter<"::mlir::StringAttr">:$given,
      OptionalArrayRefParameter<"std::pair<::mlir::StringAttr, ::mlir::StringAttr>">:$axes,
      OptionalParameter<"::mlir::StringAttr">:$replicated, OptionalParameter<"::mlir::StringAttr">:$tried);
  let builders = [AttrBuilder<(ins "::llvm::StringRef":$given), [{
    return $_get($_ctxt, ::mlir::StringAttr::get($_ctxt, given),
                 ::llvm::ArrayRef<std::pair<::mlir::StringAttr, ::mlir::StringAttr>>(), ::mlir::StringAttr(),
                 ::mlir::StringAttr());
  }]>];
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// True if it is empty.
    bool isEmpty() const { return describe().empty(); }
    /// The origin of `axis`; without an entry for it, the whole description.
    std::string describeAxis(::mlir::StringAttr axis) const;
    /// "user", "data: strategy dp: batch; micro: micro-batches", "replicated: it is one element".
    std::string describe() const;
  }];
}

#endif
