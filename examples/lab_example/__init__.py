"""An attention, a data set and a task outside `sliceformer_lab`."""
