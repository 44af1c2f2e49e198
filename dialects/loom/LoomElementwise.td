//===- LoomElementwise.td - one element in, one out ---------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_ELEMENTWISE
#define GRIDLOOM_LOOM_ELEMENTWISE

include "dialects/loom/LoomBase.td"

// An operation that computes each element of its result from the elements of its operands at the same position.
// A definition states what is special about it: `let linear = 1`, `let cycles = "12"`, numeric traits.
class Loom_ElementwiseOp<string mnemonic, list<Trait> traits = []>
    : Loom_Op<mnemonic, !listconcat([DeclareOpInterfaceMethods<KernelBodyInterface>, SameOperandsAndResultShape], traits),
              [], [], ShardingRuleInterface> {
  /// f(x + y) = f(x) + f(y), over all operands together: partial sums pass through unreduced.
  bit linear = 0;
  /// C++ expression for CPU cycles on a vector of 16 f32, measured for some and estimated by likeness for others.
  string cycles = "1";
  let extraClassDeclaration = [{
    ::gridloom::dist::ShardingRule getShardingRule() { return ::gridloom::dist::getElementwiseRule(*this); }
    bool isLinear() { return }] # linear # [{; }
    int64_t getScalarCycles() { return }] # cycles # [{; }
  }];
}

class Loom_UnaryOp<string mnemonic, string text, list<Trait> traits = []>
    : Loom_ElementwiseOp<mnemonic, !listconcat([SameOperandsAndResultType], traits)> {
  let summary = text;
  let arguments = (ins Loom_Tensor:$input);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input attr-dict `:` type($output)";
}

class Loom_BinaryOp<string mnemonic, string text, list<Trait> traits = []>
    : Loom_ElementwiseOp<mnemonic, !listconcat([SameOperandsAndResultType], traits)> {
  let summary = text;
  let arguments = (ins Loom_Tensor:$lhs, Loom_Tensor:$rhs);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($output)";
}

def Loom_NegateOp : Loom_UnaryOp<"negate", "-x"> { let linear = 1; }
def Loom_AbsOp : Loom_UnaryOp<"abs", "|x|">;
def Loom_ExpOp : Loom_UnaryOp<"exp", "e to the x", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "12"; }
def Loom_LogOp : Loom_UnaryOp<"log", "natural logarithm", [Loom_Bounded, Loom_AmplifiesError]> { let cycles = "16"; }
def Loom_SqrtOp : Loom_UnaryOp<"sqrt", "square root", [Loom_AmplifiesError]> { let cycles = "10"; }
def Loom_RsqrtOp : Loom_UnaryOp<"rsqrt", "1 / square root", [Loom_AmplifiesError]> { let cycles = "10"; }
def Loom_TanhOp : Loom_UnaryOp<"tanh", "hyperbolic tangent", [Loom_Bounded]> { let cycles = "12"; }
def Loom_ErfOp : Loom_UnaryOp<"erf", "Gauss error function", [Loom_Bounded]> { let cycles = "20"; }
def Loom_LogisticOp : Loom_UnaryOp<"logistic", "1 / (1 + e to the -x)", [Loom_Bounded]> { let cycles = "12"; }
def Loom_FloorOp : Loom_UnaryOp<"floor", "largest integer not above x", [Loom_AmplifiesError]>;
def Loom_CeilOp : Loom_UnaryOp<"ceil", "smallest integer not below x", [Loom_AmplifiesError]>;
def Loom_SignOp : Loom_UnaryOp<"sign", "-1, 0 or 1; NaN stays NaN", [Loom_Bounded]>;
def Loom_NotOp : Loom_UnaryOp<"not", "bitwise complement; logical on i1">;
def Loom_RoundNearestEvenOp : Loom_UnaryOp<"round_nearest_even", "nearest integer; halves to the even one", [Loom_AmplifiesError]>;
def Loom_SineOp : Loom_UnaryOp<"sine", "sine of x in radians", [Loom_Bounded, Loom_AmplifiesError]> { let cycles = "16"; }
def Loom_CosineOp : Loom_UnaryOp<"cosine", "cosine of x in radians", [Loom_Bounded, Loom_AmplifiesError]> { let cycles = "16"; }
def Loom_TanOp : Loom_UnaryOp<"tan", "tangent of x in radians", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_AsinOp : Loom_UnaryOp<"asin", "arcsine, in radians", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_AcosOp : Loom_UnaryOp<"acos", "arccosine, in radians", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_AtanOp : Loom_UnaryOp<"atan", "arctangent, in radians", [Loom_Bounded]> { let cycles = "16"; }
def Loom_SinhOp : Loom_UnaryOp<"sinh", "hyperbolic sine", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_CoshOp : Loom_UnaryOp<"cosh", "hyperbolic cosine", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_AsinhOp : Loom_UnaryOp<"asinh", "inverse hyperbolic sine"> { let cycles = "100"; }
def Loom_AcoshOp : Loom_UnaryOp<"acosh", "inverse hyperbolic cosine", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_AtanhOp : Loom_UnaryOp<"atanh", "inverse hyperbolic tangent", [Loom_AmplifiesError]> { let cycles = "100"; }

def Loom_AddOp : Loom_BinaryOp<"add", "x + y"> { let linear = 1; }
def Loom_SubtractOp : Loom_BinaryOp<"subtract", "x - y"> { let linear = 1; }
def Loom_MultiplyOp : Loom_BinaryOp<"multiply", "x * y">;
def Loom_DivideOp : Loom_BinaryOp<"divide", "x / y; integers truncate"> { let cycles = "isFloatTensor(getOutput()) ? 6 : 100"; }
def Loom_MaximumOp : Loom_BinaryOp<"maximum", "larger of x and y; NaN if either is">;
def Loom_MinimumOp : Loom_BinaryOp<"minimum", "smaller of x and y; NaN if either is">;
def Loom_PowerOp : Loom_BinaryOp<"power", "x to the y", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_AndOp : Loom_BinaryOp<"and", "bitwise and; logical on i1">;
def Loom_OrOp : Loom_BinaryOp<"or", "bitwise or; logical on i1">;

def Loom_XorOp : Loom_BinaryOp<"xor", "bitwise exclusive or; logical on i1">;
def Loom_RemainderOp : Loom_BinaryOp<"remainder", "x - y * trunc(x / y), of x's sign; an integer by zero gives x", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_ShiftLeftOp : Loom_BinaryOp<"shift_left", "x * 2 to the y; 0 where y is not below the width">;
def Loom_ShiftRightLogicalOp : Loom_BinaryOp<"shift_right_logical", "bits of x moved down y places; 0 where y is not below the width">;

def Loom_CompareOp : Loom_ElementwiseOp<"compare", [SameTypeOperands]> {
  let summary = "x direction y, as i1; unordered floats compare false, except ne";
  let arguments = (ins Loom_Tensor:$lhs, Loom_Tensor:$rhs, DirectionAttr:$direction);
  let results = (outs Loom_BoolTensor:$output);
  let assemblyFormat = "$direction $lhs `,` $rhs attr-dict `:` functional-type(operands, results)";
}

def Loom_SelectOp : Loom_ElementwiseOp<"select", [AllTypesMatch<["on_true", "on_false", "output"]>]> {
  let summary = "predicate ? on_true : on_false";
  let arguments = (ins Loom_BoolTensor:$predicate, Loom_Tensor:$on_true, Loom_Tensor:$on_false);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$predicate `,` $on_true `,` $on_false attr-dict `:` type($predicate) `,` type($output)";
}

def Loom_ConvertOp : Loom_ElementwiseOp<"convert"> {
  let summary = "Changes the element type; float to integer truncates, anything to i1 is x != 0";
  let description = [{
    What rounds to more than the largest number of an 8-bit float becomes that number; if `unsaturated`
    infinity, or NaN of a type that has none.
  }];
  let arguments = (ins Loom_Tensor:$input, UnitAttr:$unsaturated);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "(`unsaturated` $unsaturated^)? $input attr-dict `:` functional-type(operands, results)";
  let cycles = "getConversionCycles(getInput(), getOutput())";
}

def Loom_BitcastConvertOp : Loom_ElementwiseOp<"bitcast_convert", [Loom_AmplifiesError]> {
  let summary = "The same bits as another element type of as many bits";
  let description = "**Constraints:** L-BT1: both element types are of one width, neither is i1.";
  let arguments = (ins Loom_Tensor:$input);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Loom_GeluOp : Loom_ElementwiseOp<"gelu", [SameOperandsAndResultType, DeclareOpInterfaceMethods<DecomposeInterface>]> {
  let summary = "Gaussian error linear unit (Hendrycks and Gimpel 2016, section 2)";
  let arguments = (ins Loom_FloatTensor:$input, GeluAttr:$form);
  let results = (outs Loom_FloatTensor:$output);
  let assemblyFormat = "$form $input attr-dict `:` type($output)";
  let cycles = "20";
}

#endif
