package mnist

import "fmt"

// Names of the four files, without the .gz that they may carry.
const (
	trainImages = "train-images-idx3-ubyte"
	trainLabels = "train-labels-idx1-ubyte"
	testImages  = "t10k-images-idx3-ubyte"
	testLabels  = "t10k-labels-idx1-ubyte"
)

// Set is a list of labelled images. Only the pixels that are not zero are kept:
// they are one in five, and the arithmetic of the first layer runs over them
// alone. A Set does not change after it was made.
type Set struct {
	labels []byte
	// starts[i] and starts[i+1] bound image i in positions and values.
	starts    []uint32
	positions []uint16
	values    []byte
}

// Load reads the training set and the test set from the folder dir, in which
// the four files may be gzip files or plain. Errors: *FormatError, or that of
// the file system, each naming the file.
func Load(dir string) (train, test *Set, err error) {
	if train, err = loadSet(dir, trainImages, trainLabels); err != nil {
		return nil, nil, err
	}
	if test, err = loadSet(dir, testImages, testLabels); err != nil {
		return nil, nil, err
	}
	return train, test, nil
}

func loadSet(dir, images, labels string) (*Set, error) {
	imageFile, err := locate(dir, images)
	if err != nil {
		return nil, err
	}
	labelFile, err := locate(dir, labels)
	if err != nil {
		return nil, err
	}
	pixels, err := readFile(imageFile, parseImages)
	if err != nil {
		return nil, err
	}
	digits, err := readFile(labelFile, parseLabels)
	if err != nil {
		return nil, err
	}
	if numImages := len(pixels) / ImageSize; numImages != len(digits) {
		return nil, &FormatError{
			File:   labelFile,
			Reason: fmt.Sprintf("holds %d labels for the %d images of %s", len(digits), numImages, imageFile),
		}
	}
	return newSet(pixels, digits), nil
}

// newSet keeps what is not zero of len(labels) images of ImageSize pixels each.
func newSet(pixels, labels []byte) *Set {
	inked := 0
	for _, v := range pixels {
		if v != 0 {
			inked++
		}
	}
	s := &Set{
		labels:    labels,
		starts:    make([]uint32, 1, len(labels)+1),
		positions: make([]uint16, 0, inked),
		values:    make([]byte, 0, inked),
	}
	for i := range labels {
		for position, v := range pixels[i*ImageSize : (i+1)*ImageSize] {
			if v != 0 {
				s.positions = append(s.positions, uint16(position))
				s.values = append(s.values, v)
			}
		}
		s.starts = append(s.starts, uint32(len(s.values)))
	}
	return s
}

// Len returns the number of images.
func (s *Set) Len() int { return len(s.labels) }

// Label returns the digit that image i shows, 0 to 9. It panics like an index
// expression if i is out of range.
func (s *Set) Label(i int) int { return int(s.labels[i]) }

// Pixels returns the pixels of image i that are not zero: their positions
// (row*28 + column, ascending) and values (1 to 255). The slices belong to the
// Set and must not be changed.
func (s *Set) Pixels(i int) (positions []uint16, values []byte) {
	begin, end := s.starts[i], s.starts[i+1]
	return s.positions[begin:end], s.values[begin:end]
}

// First returns the set of the first n images, or s itself if it has no more. It
// shares the memory of s.
func (s *Set) First(n int) *Set {
	n = max(n, 0)
	if n >= s.Len() {
		return s
	}
	end := s.starts[n]
	return &Set{labels: s.labels[:n], starts: s.starts[:n+1], positions: s.positions[:end], values: s.values[:end]}
}

// Mean returns the mean image of the set, one value of 0 to 255 for each pixel.
// The slice is new.
func (s *Set) Mean() []float32 {
	var sums [ImageSize]int64
	for i, position := range s.positions {
		sums[position] += int64(s.values[i])
	}
	mean := make([]float32, ImageSize)
	for position, sum := range sums {
		mean[position] = float32(float64(sum) / float64(max(1, s.Len())))
	}
	return mean
}
