// What the emulator registers with TensorFlow, once per process.
#ifndef HPLACER_EMULATOR_REGISTRATION_H_
#define HPLACER_EMULATOR_REGISTRATION_H_

namespace hplacer::emulator {

constexpr const char* kPlatform = "EMULATED";  // StreamExecutor's name: [A-Z][A-Z_]*

// Device factories in place of TensorFlow's own (devices.cc).
void RegisterDevices();
// A kernel for each of the GPU's that has a twin on the CPU (kernels.cc).
void RegisterKernels();

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_REGISTRATION_H_
