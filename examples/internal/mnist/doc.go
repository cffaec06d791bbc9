// Package mnist holds what the examples train: the MNIST data set and a small
// multi-layer perceptron whose gradients it computes.
//
// # Terms
//
// A Set is a labelled list of 28x28 grey images, kept sparse because four of
// five pixels are zero. A Sampler cuts shuffled epochs into batches; batch
// number s is the same for whoever asks for it, so workers share an epoch by
// taking different steps. A Phase is a number of epochs with one batch size.
// Params are the four layers of the MLP as plain slices, in the order of
// MLP.Layers, ready to be pushed and pulled by name.
//
// # Smallest use
//
//	dir, err := mnist.Find("")              // or the value of -data
//	train, test, err := mnist.Load(dir)
//	mlp, err := mnist.NewMLP(mnist.Config{Mean: train.Mean()})
//	params := mlp.Init(1)
//	sampler, err := mnist.NewSampler(train.Len(), []mnist.Phase{{Epochs: 4, BatchSize: 64}, {Epochs: 1, BatchSize: 512}}, 1)
//	loss, grads, err := mlp.Gradient(params, mnist.Batch{Set: train, Samples: sampler.Batch(0)})
//	accuracy, err := mlp.Accuracy(params, test)
//
// # Concurrency
//
// A Set is read-only after Load and may be shared. An MLP and a Sampler own
// reused buffers: give each goroutine its own. No call starts a goroutine.
//
// # Errors
//
// *NotFoundError when the data folder is in none of the usual places,
// *FormatError when a file is not what it should be, *ShapeError when
// parameters, batch or configuration do not fit the model.
//
// # Limits
//
// At most MaxImages images in one file, MaxHidden hidden units and MaxEpochs
// epochs; they bound what a damaged file or a wrong flag can make the program
// allocate.
//
// # References
//
// LeCun, Cortes, Burges, "The MNIST database of handwritten digits" (file
// format idx). He et al., "Delving Deep into Rectifiers", section 2.2 (initial
// weights). LeCun et al., "Efficient BackProp", section 4.3 (why the mean image
// is taken off).
package mnist
