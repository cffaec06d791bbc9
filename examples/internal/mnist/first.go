package mnist

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
