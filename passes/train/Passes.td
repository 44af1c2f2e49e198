//===- Passes.td - training steps ---------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_TRAIN
#define GRIDLOOM_PASSES_TRAIN

include "mlir/Pass/PassBase.td"

def AddTrainStep : Pass<"loom-add-train-step", "::mlir::ModuleOp"> {
  let summary = "Adds a training step and an evaluation to a model";
  let description = [{
    Every float weight that the losses depend on becomes a state that begins with the weight, in all
    functions. Beside the functions of entry `main` there are then those of two more entries:

    - `eval`: the inputs that the losses need, among them targets such as labels, to the outputs `loss`, `count`, and
      NAME and NAME.count of each metric. Of several losses, whose sum `loss` is, `count` is the first one's; each is
      given as `loss.1` and so on, with `loss.1.count`.
    - `train_step`: the same with input `learning_rate`. The sum of the losses is differentiated and divided by the
      count; the optimizer gives the next value of each parameter and of its own states, called PARAMETER/SLOT. Outputs
      are those of `eval`, `gradient_norm` and `committed`: 0 where the loss or the norm is not finite, and then
      every state keeps its value. The state `train/step` counts committed steps.
      With a scale of the loss, the derivative is multiplied by the state `train/loss_scale` (0 stands for what it begins
      with) and gradients are divided by it; output `loss_scale` is the step's. `train/good_steps` counts steps in a row that
      were taken since a dynamic scale changed. These two states change with steps that are not taken, too.

    With `inits` parameters begin with drawn numbers: `loom.draw` takes the place of `loom.init`, and the weight's own values
    are not read.

    A function of entry `train_step` that is there already is the model as it is trained, where it differs from `main`.

    ```mlir
    // losses="mse(y, target)" optimizer="sgd(lr=0.1)"
    func.func @main(%x: tensor<2x4xf32>) -> (tensor<2x1xf32> {loom.name = "y"}) attributes {loom.entry = "main"} {
      %w = loom.get_weight @w : tensor<4x1xf32>
    ```
    becomes
    ```mlir
    func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x1xf32> {loom.init = "w", loom.role = "parameter", loom.state = "w"})
        -> (tensor<2x1xf32> {loom.name = "y"}) attributes {loom.entry = "main"} { ... }
    func.func @eval(%x, %target, %w) -> (tensor<f32> {loom.name = "loss"}, ...) attributes {loom.entry = "eval"} { ... }
    func.func @train_step(%x, %target, %learning_rate, %w, %step) -> (tensor<f32> {loom.name = "loss"}, ...,
        tensor<4x1xf32> {loom.state = "w"}, tensor<i64> {loom.state = "train/step"}) attributes {loom.entry = "train_step"} { ... }
    ```
  }];
  let options = [
    ListOption<"losses", "losses", "std::string", "losses, whose sum is minimised, as --loss says them">,
    ListOption<"metrics", "metrics", "std::string", "further outputs, as --metric says them">,
    Option<"optimizer", "optimizer", "std::string", "\"\"", "the rule of a step, as --optimizer says it">,
    Option<"clip", "clip", "std::string", "\"\"", "the limit of gradients, as --clip says it">,
    Option<"lossScale", "loss-scale", "std::string", "\"\"", "the scale of the loss, as --loss-scale says it; empty: none">,
    ListOption<"parameters", "parameters", "std::string", "settings of parameters, as --param says them">,
    ListOption<"inits", "inits", "std::string", "what parameters begin with, as --init says it">,
    Option<"seed", "seed", "uint64_t", "0", "the seed of inits, as --seed says it">];
}

#endif
