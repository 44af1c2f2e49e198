//===- Passes.td - the shard phase --------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_SHARD
#define GRIDLOOM_PASSES_SHARD

include "mlir/Pass/PassBase.td"

def InsertMesh : Pass<"dist-insert-mesh", "::mlir::ModuleOp"> {
  let summary = "Declares the mesh of the program";
  let description = [{
    `axes="data=2,model=2"` becomes

    ```mlir
    dist.mesh @mesh <["data" = 2, "model" = 2]>
    ```
  }];
  let options = [Option<"axes", "axes", "std::string", "", "name=size, separated by commas">];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
}

def CloneConstants : Pass<"dist-clone-constants", "::mlir::ModuleOp"> {
  let summary = "Gives each user of a constant its own, and a tied table a copy to multiply, so that shardings do not spread through them";
  let description = [{
    Constants of one value, `loom.iota`, and what is broadcast or reshaped from them cost nothing to
    make again; small vectors among the weights, which exporters merge where they are equal, cost little.

    ```mlir
    %0 = loom.maximum %x, %zero : tensor<4x8xf32>
    %1 = loom.maximum %y, %zero_copy : tensor<4x8xf32>
    ```

    `tables` names weights that get a second copy if they are looked up and also read in another way, such as an
    embedding that makes the logits: all rows are looked up without messages, and a device keeps only its part of the
    other copy.
  }];
  let options = [
    ListOption<"tables", "tables", "std::string", "names of such weights or of their nodes, a star for any text">,
    Option<"mostBytes", "most-bytes", "int64_t", "std::numeric_limits<int64_t>::max()", "the largest size in bytes of such a weight">,
  ];
}

def UnpackWeights : Pass<"dist-unpack-weights", "::mlir::ModuleOp"> {
  let summary = "Splits packed weights, such as query, key and value in one";
  let description = [{
    Where a product with a weight is only read in slices of its columns, also after a bias, a reshape or a
    transpose, each slice becomes a product with its part of the weight: a device's share of heads is
    a stretch of each part, not of the whole. What a user pinned stays whole.

    ```mlir
    %0 = loom.dot_general %x, %w ... : (tensor<8x16xf32>, tensor<16x96xf32>) -> tensor<8x96xf32>
    %1 = loom.slice %0 [0, 0] to [8, 64] by [1, 1] : (tensor<8x96xf32>) -> tensor<8x64xf32>
    %2 = loom.slice %0 [0, 64] to [8, 96] by [1, 1] : (tensor<8x96xf32>) -> tensor<8x32xf32>
    ```
    becomes, after loom-hoist-prologue,
    ```mlir
    %1 = loom.dot_general %x, %"w[0:64]" ... : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
    %2 = loom.dot_general %x, %"w[64:96]" ... : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    ```

    The module's attribute `dist.unpacked` lists the products' nodes.
  }];
  let options = [ListOption<"only", "only", "std::string", "nodes to unpack, a star for any text; default: all">];
}

def ApplyAnnotations : Pass<"dist-apply-annotations", "::mlir::ModuleOp"> {
  let summary = "Applies the shardings of the user's options and the model's annotations";
  let description = [{
    `shard="w=[{},{model} ]"` closes the sharding of the weight, input, output or node `w`:

    ```mlir
    %w = loom.get_weight @w {dist.shardings = [#dist.sharding<@mesh, [{}, {"model"} ]>], ...}
    ```

    `shard="w=stored[{data},{} ]"` sets `dist.storage`, how a weight or state lies in memory, and leaves its sharding open.

    A name that is nowhere in the program, an axis that is not in the mesh or is the pipeline's, an
    axis named twice, and two shardings for one value, the model's own included, are errors.
  }];
  let options = [
    ListOption<"shard", "shard", "std::string", "NAME=[{axis,...},...]">,
    Option<"stageAxis", "stage-axis", "std::string", "\"pipe\"", "The mesh axis of stages">
  ];
}

def ApplyStrategy : Pass<"dist-apply-strategy", "::mlir::ModuleOp"> {
  let summary = "Seeds the shardings of data and tensor parallelism";
  let description = [{
    `dp` splits the leading dimension of every input over its axes. `tp` splits weights of
    contractions by column where a later contraction can take the split dimension by row, so that the
    pair needs one reduction (Megatron-LM, Shoeybi et al. 2019, section 3); `vocab` splits the rows of
    embedding tables. What follows from the seeds is left to propagation.

    ```mlir
    %w1 = loom.get_weight @w1 {dist.shardings = [#dist.sharding<@mesh, [{?}, {"model", ?} ]>],
                               dist.origins = [#dist.origin<"model" = "strategy tp: column">]} : tensor<16x64xf32>
    ```

    With `microbatches` above one the leading dimension is also cut over the axis `micro`, in time. With `only-given` that
    is all that is written: what users say of some values is not spread to others, which a search decides.
  }];
  let options = [
    ListOption<"dp", "dp", "std::string", "axes for data parallelism">,
    ListOption<"tp", "tp", "std::string", "axes for tensor parallelism">,
    Option<"vocab", "vocab", "bool", "true", "split embedding tables with tp">,
    Option<"sequence", "sequence", "bool", "false", "with tp, split the sequence where weights are not">,
    Option<"microbatches", "microbatches", "int64_t", "1", "most micro-batches">,
    Option<"onlyGiven", "only-given", "bool", "false", "leave open what follows from given shardings">,
    Option<"explain", "explain", "bool", "true", "note on weights what keeps their columns together">
  ];
}

def SplitStates : Pass<"dist-split-states", "::mlir::ModuleOp"> {
  let summary = "Splits what training keeps over the axes of data parallelism";
  let description = [{
    ZeRO (Rajbhandari et al. 2020, section 5): each device of `axes` keeps, and updates, its part of the optimizer's states; with
    `level=3` of the parameters, too, which are then gathered where they are used. Other parameters stay as the strategy has them.
    With `level=2` and 3 the sums of gradients over the parts of a batch (`loom.accumulates`) lie as the optimizer's states do: each
    part's gradients are reduce-scattered before they are added. With level 1 they lie as the parameters: each device adds up what it
    has of all parts, and the sum is reduce-scattered once. Where the batch has one part, level 2 is level 1.

    ```mlir
    // axes=data level=1
    func.func @train_step(%w: tensor<64x32xf32> {loom.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{}, {} ]>, ...},
                          %m: tensor<64x32xf32> {loom.role = "moment", dist.sharding = #dist.sharding<@mesh, [{"data"}, {} ]>, ...})
    ```
  }];
  let options = [
    ListOption<"axes", "axes", "std::string", "axes for data parallelism">,
    Option<"level", "level", "int64_t", "1", "1: the optimizer's states; 2: sums of gradients, too; 3: parameters, too">
  ];
}

def SearchSplits : Pass<"dist-search-splits", "::mlir::ModuleOp"> {
  let summary = "Chooses the shardings of all values together, by estimated time";
  let description = [{
    Every way to put the axes on the factors of each operation is weighed: a device's share of the work, and
    what it takes to reshard between the operations. A solver takes the choice that costs least over the whole
    program, all functions together, and proves a bound; what has been given stays.

    ```mlir
    // axes=model; the columns of one product are the rows of the next, which needs one reduction
    %0 = loom.dot_general %x, %w1 ... {dist.shardings = [#dist.sharding<@mesh, [{}, {"model"} ]>]}
    %1 = loom.dot_general %0, %w2 ... {dist.shardings = [#dist.sharding<@mesh, [{}, {} ]>]}
    ```

    A remark gives the time found and the least that any choice takes. With `memory`, weights that a device has no room
    for lie in parts and are gathered where they are used.

    With `hidden-share`, messages cost less that the schedule can hide behind work: such as gathers of weights, and of one of several
    products of the same operand. The remark's times are then less than the sums.

    Where the mesh has the axis `stage-axis`, stages are cut first, as dist-assign-stages does, and again by the times that the
    splits lead to while that is faster. What is cut over the axis `micro` stays so; times and memory are those of one micro-batch.
  }];
  let options = [
    ListOption<"axes", "axes", "std::string", "axes to split over, major before minor">,
    Option<"stageAxis", "stage-axis", "std::string", "\"pipe\"", "mesh axis whose coordinate is the stage">,
    Option<"memory", "memory", "int64_t", "0", "bytes of weights and activations that a device may keep; 0: any">,
    Option<"hiddenShare", "hidden-share", "double", "0", "share of a message that costs nothing if other work can run beside it">,
    Option<"work", "work", "uint64_t", "100", "rounds of the solver">,
    Option<"mostTableBytes", "most-table-bytes", "uint64_t", "2147483648", "bytes of a search's tables of costs, of which there are three copies">
  ];
}

def SeedRandomly : Pass<"dist-seed-randomly", "::mlir::ModuleOp"> {
  let summary = "Seeds random shardings of inputs and weights, for tests";
  let description = [{
    For each of the axes, every input and weight is split along a dimension drawn from the seed, the
    axis and the value's name, or left alone once in eight times; where no input or weight can be
    split, another value is. The same seed gives the same shardings on every machine.

    ```mlir
    // axes=x seed=1
    func.func @main(%a: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{?}, {"x", ?} ]>,
                                         dist.origin = #dist.origin<"x" = "random: seed 1">, ...})
    ```
  }];
  let options = [
    ListOption<"axes", "axes", "std::string", "axes to split over">,
    Option<"seed", "seed", "uint64_t", "0", "any number">
  ];
}

def Propagate : Pass<"dist-propagate", "::mlir::ModuleOp"> {
  let summary = "Completes shardings: every value gets one, with its origin";
  let description = [{
    Walks the program to a fixpoint with the operations' sharding rules, forwards and backwards.

    ```mlir
    // w1 is [{}, {"model"} ]; afterwards
    %h = loom.dot_general %x, %w1 ... {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {"model"} ]>],
                                       dist.origins = [#dist.origin<"model" = "strategy tp: column">]}
    ```
  }];
  let options = [
    Option<"explain", "explain", "bool", "true",
           "Say of values that are not split why, and of shardings that disagree; what strategies tried in vain is said always">
  ];
}

def AssignStages : Pass<"dist-assign-stages", "::mlir::ModuleOp"> {
  let summary = "Cuts the program into pipeline stages";
  let description = [{
    Chooses cuts of the operation order that make the slowest stage fastest, transfers included, by
    dynamic programming over all positions; sets `dist.stage` on every operation. Constants and
    weights go to the stages that read them.

    All functions but training steps, which follow the model, are cut together: what reads or writes a state is in one stage, the same in every
    function, and a weight is read in the same stages by all functions where such cuts exist. The
    stage that keeps a state stands on the argument:

    ```mlir
    func.func @main(%past: tensor<1x4x96x12xf32> {dist.stage = 1 : i64, loom.state = "past_key_3", ...})
    ```
  }];
  let options = [Option<"axis", "axis", "std::string", "\"pipe\"", "mesh axis whose coordinate is the stage">];
}

def PinStages : Pass<"dist-pin-stages", "::mlir::ModuleOp"> {
  let summary = "Sets stages and micro-batches as a strategy file says";
  let description = [{
    Takes the place of dist-apply-strategy where a strategy file is given: its `microbatches` become the mesh's axis `micro`, and its
    `stages` the stages of operations.

    ```mlir
    // stages: {"/layer.0/*": 0}
    %0 = loom.tanh %x {dist.stage = 0 : i64} : tensor<4xf32> loc("/layer.0/act")
    ```

    Unknown names, and stages that the model's annotations contradict, are listed in one error.
  }];
  let options = [Option<"file", "file", "std::string", "", "the strategy file">];
}

def PinShardings : Pass<"dist-pin-shardings", "::mlir::ModuleOp"> {
  let summary = "Sets shardings as a strategy file says";
  let description = [{
    Closes the sharding of every value that the file names, after each stage got its copies of constants and weights; of others
    dist-propagate decides. Nodes in the section `splits` get their `dist.splits`.

    ```mlir
    // weights: {"layer.*.w": [{}, {model} ]}
    %w = loom.get_weight @layer.0.w {dist.shardings = [#dist.sharding<@mesh, [{}, {"model"} ]>],
                                     dist.origins = [#dist.origin<"strategy file">]} : tensor<16x64xf32>
    ```

    Unknown names, other numbers of dimensions, shardings that an option, the model's annotations or the other end of a state
    contradicts, and micro-batches that a size does not allow are listed in one error.
  }];
  let options = [Option<"file", "file", "std::string", "", "the strategy file">];
}

def PinReductions : Pass<"dist-pin-reductions", "::mlir::ModuleOp"> {
  let summary = "Reduces partial sums where a strategy file says that a value is whole";
  let description = [{
    What the file's `nodes` declare `unreduced` stays a partial sum; any other value that they name is reduced for all its readers: linear
    operations that read one get `dist.splits` without unreduced axes, as the shardings imply. Of values that the file does not name
    dist-choose-splits decides.

    ```mlir
    // nodes: {"/mlp/down/MatMul": [{}, {} ]}
    %1 = loom.add %0, %y {dist.splits = #dist.splits<[{}, {} ]>} : tensor<4x8xf32>  // %0 is the product
    ```
  }];
  let options = [Option<"file", "file", "std::string", "", "the strategy file">];
}

def RequireUsedAxes : Pass<"dist-require-used-axes", "::mlir::ModuleOp"> {
  let summary = "Refuses a mesh with an axis that splits nothing";
  let description = [{
    Devices along such an axis would all compute the same. The axis of stages, `stage-axis`, is used by
    them. Changes nothing.
  }];
  let options = [
    Option<"stageAxis", "stage-axis", "std::string", "\"pipe\"", "The mesh axis of stages">,
    ListOption<"tp", "tp", "std::string", "The axes over which the strategy splits weights, not the batch">,
  ];
}

def DeclareStorage : Pass<"dist-declare-storage", "::mlir::ModuleOp"> {
  let summary = "Says of every weight and state how it lies in memory";
  let description = [{
    As it is split, unless a user said `--shard 'w=stored[{data},{} ]'`:

    ```mlir
    %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"data"}, {} ]>, dist.shardings = [#dist.sharding<@mesh, [{}, {} ]>]}
    ```

    Every device of `data` keeps its part of the rows, and gathers all of them where the weight is read whole.
  }];
}

def ChooseSplits : Pass<"dist-choose-splits", "::mlir::ModuleOp"> {
  let summary = "Decides how every operation is split and where partial sums stay unreduced";
  let description = [{
    From the shardings of an operation's operands and results, where they disagree by cost. An operation that has
    splits keeps them, and linear operations take what is declared unreduced so. Other partial sums stay so through linear operations
    that make nothing bigger, where all their readers are such; their values are then declared unreduced. Partitioning executes what
    stands there, whoever wrote it.

    ```mlir
    // %h is [{}, {"model"} ] and %w2 [{"model"}, {} ]: rows whole, columns whole, the contraction split
    %y = loom.dot_general %h, %w2 ... {dist.splits = #dist.splits<[{}, {}, {"model"} ]>}
    // both operands are partial sums over "model"; their sum is reduced once, where something needs it
    %z = loom.add %y, %y2 {dist.splits = #dist.splits<[{}, {} ], unreduced = {"model"}>}
    ```
  }];
}

def VerifySharded : Pass<"dist-verify-sharded", "::mlir::ModuleOp"> {
  let summary = "Checks that every value has a sharding with an origin, and every operation a stage";
  let description = [{
    **Guarantees:**
    - S-G1: every value has a closed sharding over the module's mesh, of the value's rank, that uses
      no axis twice, nor the one of the pipeline's stages. Only results of operations are declared unreduced.
    - S-G2: every sharding has an origin.
    - S-G3: every operation has a stage, and no value flows to an earlier one but in
      training steps.
    - S-G4: the axis `micro` is minor to all axes of its dimension, and splits the leading dimension
      of all inputs and outputs, or of none.
    - S-G6: what reads or writes a state is in one stage, the same in all functions.
    - S-G7: every operation has `dist.splits` that its rule allows (D-SP1 to D-SP8), none over the axis of the
      pipeline's stages.
    - S-G8: from its definition a value can be brought to where an operation's splits read it, and to the outputs: what is
      cut in time is cut alike, and what stays unreduced is a partial sum.
    - S-G9: a loop or branch is split as the arguments and results of its bodies are.
    - S-G10: every weight and state has `dist.storage`, a sharding as in S-G1 without micro-batches; a weight's splits read it so, and a
      state's is the same in all functions.
    - S-G11: a value is declared unreduced over axes over which its operation makes partial sums, and is then read so by all its readers,
      which are linear; no other value is.
  }];
}

#endif
