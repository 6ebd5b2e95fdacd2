// Which tensors are in the host's memory wherever their op runs, on a GPU too.
//
// TensorFlow computes int32 on the host, and a kernel on a GPU may name further arguments that it
// has there: shapes, axes, counts (`HostMemory` where it is registered). If the op that makes such
// a tensor and all that read it have it on the host, devices of one task hand it on as it is
// ("core/common_runtime/rendezvous_mgr.cc"): there is no copy, and it takes no memory of a GPU.
//
// Inputs: a step whose nodes have all attributes. Only integers are looked at: of other types few
// tensors, all of them small, are on the host. Each op that makes or reads integers is looked up
// among the kernels once.
#ifndef HPLACER_TF_HOST_TENSORS_H_
#define HPLACER_TF_HOST_TENSORS_H_

#include <vector>

#include "tf/step.h"

namespace hplacer {

// Whether a GPU's kernel of the node reads and makes nothing in the GPU's memory: then it runs on
// the host and launches nothing. False if that is not known.
bool IsOnHostOfGpu(const tensorflow::Node& node);

// By position and output. Empty for a node that makes no integers.
std::vector<std::vector<bool>> FindHostTensors(const Step& step);

}  // namespace hplacer

#endif  // HPLACER_TF_HOST_TENSORS_H_
