// Python looks in a module's file for a function named after the file, as in PyInit__tf_2_21. The
// bindings, which are the same for all TensorFlow releases, have PyInit__tf.
extern "C" {

struct PyObject;
PyObject* HPLACER_BINDINGS();
[[gnu::visibility("default")]] PyObject* HPLACER_INIT() { return HPLACER_BINDINGS(); }

}  // extern "C"
