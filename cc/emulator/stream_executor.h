// Emulated devices as TensorFlow's StreamExecutor sees them: the functions of its C interface
// ("tensorflow/c/experimental/stream_executor/stream_executor.h") over streams in virtual time.
//
// What is asked is done in the order in which it is asked: data moves at once, since all work that
// was enqueued before has moved its data, too; time is charged to streams and channels. Device
// memory is address space of this process that takes no memory before it is written.
#ifndef HPLACER_EMULATOR_STREAM_EXECUTOR_H_
#define HPLACER_EMULATOR_STREAM_EXECUTOR_H_

#include "emulator/streams.h"

namespace hplacer::emulator {

// How many streams TensorFlow has made on a device, and one of them.
int NumStreams(int device);
Stream* StreamOf(int device, int number);

// Blocks the calling thread until all streams of all devices have done what they were given.
// False: the clock stopped.
[[nodiscard]] bool WaitForDevices();

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_STREAM_EXECUTOR_H_
