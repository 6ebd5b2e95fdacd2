// Hashes single nodes for the fingerprint: op type and attributes, without names.
#ifndef HPLACER_TF_NODE_HASHER_H_
#define HPLACER_TF_NODE_HASHER_H_

#include <cstdint>
#include <string>
#include <unordered_map>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace hplacer {

class NodeHasher {
 public:
  explicit NodeHasher(const tensorflow::FunctionLibraryDefinition* library) : library_(library) {}

  // Op type and attributes of `node`; not its name, inputs and device.
  uint64_t Hash(const tensorflow::NodeDef& node);

  // The same with its requested and its assigned device.
  uint64_t Hash(const tensorflow::Node& node);

 private:
  struct AttrName {
    uint64_t hash;
    bool ignored;
    bool ignored_for_arguments;
  };

  const AttrName& Name(const std::string& name);
  uint64_t HashValue(const tensorflow::AttrValue& value);
  uint64_t HashFunction(const std::string& name);
  uint64_t HashBody(const tensorflow::FunctionDef& function);

  const tensorflow::FunctionLibraryDefinition* library_;
  std::unordered_map<std::string, uint64_t> functions_;
  std::unordered_map<std::string, AttrName> names_;
};

}  // namespace hplacer

#endif  // HPLACER_TF_NODE_HASHER_H_
