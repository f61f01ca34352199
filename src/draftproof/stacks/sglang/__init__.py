"""SGLang: what its source does with a checkpoint's MTP head, with a launch command, and on a GPU."""
