#include <nlohmann/json.hpp>
#include <string>

#include "engine_problem_file.h"

namespace hplacer {
namespace {

// Text of one line of a document, without spaces.
class JsonText {
 public:
  const std::string& text() const { return text_; }
  void Clear() { text_.clear(); }

  void Raw(const char* text) { text_ += text; }
  void String(const std::string& value) { text_ += nlohmann::json(value).dump(); }
  void Integer(int64_t value) { text_ += std::to_string(value); }

  // `begin` to `end - 1` in brackets; `write(i)` writes one element.
  template <typename Write>
  void List(int64_t begin, int64_t end, Write write) {
    text_ += '[';
    for (int64_t i = begin; i < end; ++i) {
      if (i > begin) text_ += ',';
      write(i);
    }
    text_ += ']';
  }

 private:
  std::string text_;
};

class ProblemWriter {
 public:
  ProblemWriter(const Problem& problem, std::ostream* output)
      : problem_(problem), spec_(problem.spec()), output_(output) {}

  void Write() {
    json_.Raw(R"({"format":"hplacer-problem/2","name":)");
    json_.String(spec_.name);
    json_.Raw(R"(,"device_kinds":)");
    json_.List(0, problem_.num_kinds(), [&](int64_t i) { json_.String(spec_.device_kinds[i]); });
    json_.Raw(R"(,"devices":)");
    json_.List(0, problem_.num_devices(), [&](int64_t i) { Device(i); });
    if (spec_.inter_op_threads != kInterOpThreads) {
      json_.Raw(R"(,"inter_op_threads":)");
      json_.Integer(spec_.inter_op_threads);
    }
    json_.Raw(R"(,"links":)");
    json_.List(0, spec_.link_src.size(), [&](int64_t i) { Link(i); });
    json_.Raw(R"(,"ops":)");
    json_.List(0, problem_.num_ops(), [&](int64_t i) { Op(i); });
    json_.Raw(R"(,"edges":)");
    Rows(spec_.edges, 3);
    if (!spec_.control_edges.empty()) {
      json_.Raw(R"(,"control_edges":)");
      Rows(spec_.control_edges, 2);
    }
    if (!spec_.order_op.empty()) Order();
    json_.Raw("}\n");
    Flush();
  }

 private:
  void Flush() {
    output_->write(json_.text().data(), static_cast<std::streamsize>(json_.text().size()));
    json_.Clear();
  }

  void UnlessZero(const char* key, int64_t value) {
    if (value == 0) return;
    json_.Raw(key);
    json_.Integer(value);
  }

  void Device(int64_t i) {
    json_.Raw(R"({"name":)");
    json_.String(spec_.device_names[i]);
    json_.Raw(R"(,"kind":)");
    json_.String(spec_.device_kinds[spec_.device_kind[i]]);
    json_.Raw(R"(,"memory_bytes":)");
    json_.Integer(spec_.device_memory_bytes[i]);
    if (spec_.device_slots[i] != 1) {
      json_.Raw(R"(,"slots":)");
      json_.Integer(spec_.device_slots[i]);
    }
    if (!spec_.device_cores[i].empty()) {
      json_.Raw(R"(,"cores":)");
      json_.String(spec_.device_cores[i]);
    }
    UnlessZero(R"(,"start_ns":)", spec_.device_start_ns[i]);
    UnlessZero(R"(,"turn_ns":)", spec_.device_turn_ns[i]);
    UnlessZero(R"(,"cold_ns":)", spec_.device_cold_ns[i]);
    UnlessZero(R"(,"launch_ns":)", spec_.device_launch_ns[i]);
    json_.Raw("}");
  }

  void Link(int64_t i) {
    json_.Raw(R"({"src":)");
    json_.Integer(spec_.link_src[i]);
    json_.Raw(R"(,"dst":)");
    json_.Integer(spec_.link_dst[i]);
    json_.Raw(R"(,"channel":)");
    json_.String(spec_.link_channel[i]);
    json_.Raw(R"(,"latency_ns":)");
    json_.Integer(spec_.link_latency_ns[i]);
    json_.Raw(R"(,"bytes_per_s":)");
    json_.Integer(spec_.link_bytes_per_s[i]);
    UnlessZero(R"(,"send_ns":)", spec_.link_send_ns[i]);
    UnlessZero(R"(,"send_bytes_per_s":)", spec_.link_send_bytes_per_s[i]);
    UnlessZero(R"(,"receive_ns":)", spec_.link_receive_ns[i]);
    UnlessZero(R"(,"receive_bytes_per_s":)", spec_.link_receive_bytes_per_s[i]);
    json_.Raw("}");
  }

  void Op(int64_t i) {
    json_.Raw(R"({"name":)");
    json_.String(spec_.op_names[i]);
    json_.Raw(R"(,"type":)");
    json_.String(spec_.op_types[i]);
    Costs(i);
    Outputs(i);
    UnlessZero(R"(,"temp_bytes":)", spec_.temp_bytes[i]);
    UnlessZero(R"(,"persistent_bytes":)", spec_.persistent_bytes[i]);
    if (spec_.allowed_given[i]) {
      json_.Raw(R"(,"allowed_devices":)");
      json_.List(spec_.allowed_ptr[i], spec_.allowed_ptr[i + 1],
                 [&](int64_t a) { json_.Integer(spec_.allowed_device[a]); });
    }
    if (spec_.colocation_group[i] != kNoGroup) {
      json_.Raw(R"(,"colocation_group":)");
      json_.String(spec_.colocation_group_names[spec_.colocation_group[i]]);
    }
    if (spec_.same_as[i] != kNotSame) {
      json_.Raw(R"(,"same_as":)");
      json_.Integer(spec_.same_as[i]);
    }
    if (!spec_.default_device.empty()) {
      json_.Raw(R"(,"default_device":)");
      json_.Integer(spec_.default_device[i]);
    }
    json_.Raw("}");
    Flush();
  }

  void Costs(int64_t i) {
    const char* separator = "";
    json_.Raw(R"(,"cost_ns":{)");
    for (int32_t kind = 0; kind < problem_.num_kinds(); ++kind) {
      const int64_t cost_ns = spec_.cost_ns[i * problem_.num_kinds() + kind];
      if (cost_ns == kNoKernel) continue;
      json_.Raw(separator);
      json_.String(spec_.device_kinds[kind]);
      json_.Raw(":");
      json_.Integer(cost_ns);
      separator = ",";
    }
    json_.Raw("}");
  }

  void Outputs(int64_t i) {
    const int64_t begin = spec_.output_ptr[i], end = spec_.output_ptr[i + 1];
    if (begin == end) return;
    json_.Raw(R"(,"output_bytes":)");
    json_.List(begin, end, [&](int64_t t) { json_.Integer(spec_.output_bytes[t]); });
    bool has_alias = false;
    for (int64_t t = begin; t < end; ++t) has_alias |= spec_.output_alias_src[t] != kNoAlias;
    if (!has_alias) return;
    json_.Raw(R"(,"output_alias":)");
    json_.List(begin, end, [&](int64_t t) { Alias(t); });
  }

  void Alias(int64_t tensor) {
    const int32_t src = spec_.output_alias_src[tensor];
    if (src == kNoAlias) return json_.Raw("null");
    if (src == kPersistentAlias) return json_.Raw(R"("persistent")");
    const int32_t pair[] = {src, spec_.output_alias_output[tensor]};
    json_.List(0, 2, [&](int64_t k) { json_.Integer(pair[k]); });
  }

  void Rows(const std::vector<int32_t>& table, int64_t columns) {
    json_.List(0, static_cast<int64_t>(table.size()) / columns, [&](int64_t row) {
      json_.List(row * columns, (row + 1) * columns, [&](int64_t i) { json_.Integer(table[i]); });
      Flush();
    });
  }

  void Order() {
    json_.Raw(R"(,"order":{"nodes":)");
    json_.List(0, spec_.order_op.size(), [&](int64_t i) { OrderedNode(i); });
    if (!spec_.order_targets.empty()) {
      json_.Raw(R"(,"targets":)");
      json_.List(0, spec_.order_targets.size(),
                 [&](int64_t i) { json_.Integer(spec_.order_targets[i]); });
    }
    json_.Raw("}");
  }

  void OrderedNode(int64_t i) {
    json_.Raw(R"({"op":)");
    json_.Integer(spec_.order_op[i]);
    const int64_t begin = spec_.order_input_ptr[i], end = spec_.order_input_ptr[i + 1];
    if (begin < end) {
      json_.Raw(R"(,"inputs":)");
      json_.List(begin, end, [&](int64_t k) {
        const int32_t* const input = &spec_.order_inputs[k * 2];
        json_.List(0, input[1] == kNothingRead ? 1 : 2,
                   [&](int64_t which) { json_.Integer(input[which]); });
      });
    }
    json_.Raw("}");
    Flush();
  }

  const Problem& problem_;
  const ProblemSpec& spec_;
  std::ostream* output_;
  JsonText json_;
};

}  // namespace

void WriteProblem(const Problem& problem, std::ostream* output) {
  ProblemWriter(problem, output).Write();
}

}  // namespace hplacer
