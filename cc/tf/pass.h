// The PRE_PLACEMENT pass: before TensorFlow's own Placer, it looks up or asks for a plan and
// requests its devices. TensorFlow's Placer then checks and completes them.
//
//   switched on? worth it? -> step -> fingerprint -> lookup --hit--------------> rewrite
//                                                       \--miss-> capture -> plan -/
//
// Whatever goes wrong, the graph stays as it was and TensorFlow places it: Run always returns OK.
// One graph is looked up and planned once, however many threads bring it at the same time.
#ifndef HPLACER_TF_PASS_H_
#define HPLACER_TF_PASS_H_

#include "tensorflow/core/protobuf/rewriter_config.pb.h"

namespace hplacer {

// Registers the pass and the Grappler optimizer, once per process. `defaults` has the options that
// the entry of a session or a function may leave out.
void RegisterPasses(const tensorflow::RewriterConfig_CustomGraphOptimizer& defaults);

}  // namespace hplacer

#endif  // HPLACER_TF_PASS_H_
