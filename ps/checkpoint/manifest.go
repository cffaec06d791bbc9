package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/elasticps/elasticps/shard"
)

const (
	// MaxManifestBytes is the longest manifest.
	MaxManifestBytes = 64 << 20
	// MaxJobBytes is the longest Manifest.Job.
	MaxJobBytes = 1 << 20
	// MaxDatasetsBytes is the longest Manifest.Datasets.
	MaxDatasetsBytes = 16 << 20
	// MaxFiles is the largest number of files of one checkpoint.
	MaxFiles = 1 << 16
	// MaxChain is the largest number of checkpoints that a restored one is put together
	// from: a full one and its increments.
	MaxChain = 1024

	manifestName   = "manifest.json"
	manifestFormat = "elasticps.checkpoint"
)

// Ref names a checkpoint and says exactly which one is meant.
type Ref struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // of the manifest, which holds the checksums of its files
}

// Manifest describes a checkpoint. Commit writes it, last of all.
type Manifest struct {
	// Name is the name of the checkpoint, as from Next.
	Name string
	// Parent is the checkpoint that this one is an increment to, nil when it is full.
	Parent *Ref
	// Time is when it was taken; it is kept to the nanosecond, in UTC.
	Time time.Time
	// Clock is the clock of the cut.
	Clock uint64
	// Job is what the parameter server wants to find again, such as optimizers with their
	// hyper-parameters: JSON, which this package does not look into. It may be empty.
	Job json.RawMessage
	// Datasets is how far the job was with its data when the checkpoint was taken: JSON as
	// well, and it may be empty.
	Datasets json.RawMessage
	// Model lists the layers and Shards how they are cut: as shard.Partition does, by ID, with
	// no gaps.
	Model  shard.Model
	Shards []shard.Shard
	// Files hold the shards, each shard in one file.
	Files []File
}

// document is a Manifest as JSON, one object on one line, followed by the line with the
// digest of what is before it.
type document struct {
	Format   string          `json:"format"`
	Version  int             `json:"version"`
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Parent   *Ref            `json:"parent,omitempty"`
	Time     time.Time       `json:"time"`
	Clock    uint64          `json:"clock"`
	Job      json.RawMessage `json:"job,omitempty"`
	Datasets json.RawMessage `json:"datasets,omitempty"`
	Layers   json.RawMessage `json:"layers"`
	Shards   json.RawMessage `json:"shards"` // [layer, begin, end], by ID
	Files    json.RawMessage `json:"files"`
}

type layerEntry struct {
	Name   string     `json:"name"`
	Shape  shape      `json:"shape"`
	DType  string     `json:"dtype"`
	Wire   string     `json:"wire"`
	Init   *initEntry `json:"init,omitempty"`
	Sparse bool       `json:"sparse,omitempty"`
}

// shape is the shape of a layer.
type shape []int

// UnmarshalJSON implements json.Unmarshaler. It stops at the first dimension too many.
func (s *shape) UnmarshalJSON(src []byte) error {
	list, err := decodeList(src, shard.MaxDims, func(*int) error { return nil })
	*s = list
	return err
}

type initEntry struct {
	Kind  string  `json:"kind"`
	Scale float32 `json:"scale"`
	Seed  uint64  `json:"seed"`
}

type fileEntry struct {
	Name   string    `json:"name"`
	Bytes  int64     `json:"bytes"`
	CRC32C uint32    `json:"crc32c"`
	Shards ascending `json:"shards"`
}

// The line of the digest ends the document; what it covers ends before the comma.
const (
	digestBegin = ",\n\"sha256\":\""
	digestEnd   = "\"}\n"
	digestBytes = len(digestBegin) + 2*sha256.Size + len(digestEnd)
)

// kind says whether the manifest is of a full checkpoint or of an increment.
func (m *Manifest) kind() string {
	if m.Parent == nil {
		return "full"
	}
	return "incremental"
}

// version is the oldest version of the format that can say what the manifest says: the first one
// has no sparse layers, no initializers behind Assigned, and no datasets.
func (m *Manifest) version() int {
	if len(m.Datasets) > 0 || slices.ContainsFunc(m.Model.Layers, func(l shard.Layer) bool { return l.Sparse || l.Init.Kind > shard.Assigned }) {
		return 2
	}
	return 1
}

// encode returns the manifest's bytes and its digest. The manifest is valid.
func (m *Manifest) encode() ([]byte, string, error) {
	layers := make([]layerEntry, len(m.Model.Layers))
	for i, l := range m.Model.Layers {
		layers[i] = layerEntry{Name: l.Name, Shape: append(shape{}, l.Shape...), DType: l.DType.String(), Wire: l.Wire.String(), Sparse: l.Sparse}
		if l.Init != (shard.Initializer{}) {
			layers[i].Init = &initEntry{l.Init.Kind.String(), l.Init.Scale, l.Init.Seed}
		}
	}
	shards := make([][3]int64, len(m.Shards))
	for i, s := range m.Shards {
		shards[i] = [3]int64{int64(s.Range.Layer), s.Range.Begin, s.Range.End}
	}
	files := make([]fileEntry, len(m.Files))
	for i, f := range m.Files {
		files[i] = fileEntry{f.Name, f.Bytes, f.CRC32C, make(ascending, len(f.Shards))}
		for j, id := range f.Shards {
			files[i].Shards[j] = int(id)
		}
	}
	d := document{
		Format: manifestFormat, Version: m.version(), Name: m.Name, Kind: m.kind(), Parent: m.Parent,
		Time: m.Time.UTC(), Clock: m.Clock, Job: m.Job, Datasets: m.Datasets,
	}
	var errs [4]error
	d.Layers, errs[0] = json.Marshal(layers)
	d.Shards, errs[1] = json.Marshal(shards)
	d.Files, errs[2] = json.Marshal(files)
	body, err := json.Marshal(d)
	errs[3] = err
	if err := errors.Join(errs[:]...); err != nil {
		return nil, "", err
	}
	body = body[:len(body)-1]
	digest := sha256.Sum256(body)
	text := hex.EncodeToString(digest[:])
	body = append(append(append(body, digestBegin...), text...), digestEnd...)
	if len(body) > MaxManifestBytes {
		return nil, "", fmt.Errorf("manifest of %d bytes, limit %d", len(body), MaxManifestBytes)
	}
	return body, text, nil
}

// decodeManifest reads what encode wrote and returns its digest too. The error wraps
// ErrDamaged or, when it is whole, ErrNewer.
func decodeManifest(src []byte) (Manifest, string, error) {
	m, digest, err := parseManifest(src)
	if err != nil && !errors.Is(err, ErrNewer) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return m, digest, err
}

func parseManifest(src []byte) (m Manifest, digest string, err error) {
	if len(src) < digestBytes || len(src) > MaxManifestBytes {
		return m, "", fmt.Errorf("%d bytes, must be %d to %d", len(src), digestBytes, MaxManifestBytes)
	}
	body, tail := src[:len(src)-digestBytes], src[len(src)-digestBytes:]
	sum := sha256.Sum256(body)
	digest = hex.EncodeToString(sum[:])
	if string(tail) != digestBegin+digest+digestEnd {
		return m, "", errors.New("digest does not match")
	}
	body = append(slices.Clip(body), '}')
	var version struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return m, "", err
	}
	switch {
	case version.Format != manifestFormat:
		return m, "", fmt.Errorf("format %.64q, must be %q", version.Format, manifestFormat)
	case version.Version > formatVersion:
		return m, "", fmt.Errorf("%w: version %d, this is %d", ErrNewer, version.Version, formatVersion)
	}
	var d document
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return m, "", err
	}
	if m, err = d.manifest(); err != nil {
		return m, "", err
	}
	if d.Kind != m.kind() {
		return m, "", fmt.Errorf("kind %.64q, with this parent it must be %q", d.Kind, m.kind())
	}
	if d.Version != m.version() {
		return m, "", fmt.Errorf("version %d, with what it holds it must be %d", d.Version, m.version())
	}
	return m, digest, m.validate()
}

// manifest takes the document apart, at most as far as the limits.
func (d *document) manifest() (Manifest, error) {
	m := Manifest{Name: d.Name, Parent: d.Parent, Time: d.Time, Clock: d.Clock, Job: d.Job, Datasets: d.Datasets}
	layers, err := decodeList(d.Layers, shard.MaxLayers, (*layerEntry).validate)
	if err != nil {
		return m, fmt.Errorf("layers: %w", err)
	}
	m.Model.Layers = make([]shard.Layer, len(layers))
	for i, r := range layers {
		m.Model.Layers[i] = r.layer()
	}
	var last [3]int64 // the shard before, or the beginning
	shards, err := decodeList(d.Shards, shard.MaxShards, func(r *[3]int64) error {
		next := r[0] == last[0] && r[1] == last[2] || r[0] > last[0] && r[1] == 0
		if !next || r[0] >= int64(len(layers)) || r[2] <= r[1] {
			return fmt.Errorf("elements [%d, %d) of layer %d of %d do not follow [%d, %d) of layer %d", r[1], r[2], r[0], len(layers), last[1], last[2], last[0])
		}
		last = *r
		return nil
	})
	if err != nil {
		return m, fmt.Errorf("shards: %w", err)
	}
	for i, r := range shards {
		m.Shards = append(m.Shards, shard.Shard{
			ID:    shard.ID(i),
			Range: shard.Range{Layer: int(r[0]), Begin: r[1], End: r[2]},
			DType: m.Model.Layers[r[0]].DType,
		})
	}
	names := make(map[string]bool)
	files, err := decodeList(d.Files, MaxFiles, func(r *fileEntry) error {
		if names[r.Name] {
			return fmt.Errorf("two files named %q", r.Name)
		}
		names[r.Name] = true
		return checkFileName(r.Name)
	})
	if err != nil {
		return m, fmt.Errorf("files: %w", err)
	}
	for _, r := range files {
		f := File{r.Name, r.Bytes, r.CRC32C, make([]shard.ID, len(r.Shards))}
		for i, n := range r.Shards {
			if n >= len(m.Shards) {
				return m, fmt.Errorf("file %q holds shard %d of %d", r.Name, n, len(m.Shards))
			}
			f.Shards[i] = shard.ID(n)
		}
		m.Files = append(m.Files, f)
	}
	return m, nil
}

// validate looks at what could not be told from an absent or unknown value later.
func (r *layerEntry) validate() error {
	if _, ok := parse[shard.DType](r.DType); !ok {
		return fmt.Errorf("dtype %.64q is unknown", r.DType)
	}
	if _, ok := parse[shard.DType](r.Wire); !ok {
		return fmt.Errorf("wire type %.64q is unknown", r.Wire)
	}
	if r.Init != nil {
		if _, ok := parse[shard.InitKind](r.Init.Kind); !ok {
			return fmt.Errorf("initializer %.64q is unknown", r.Init.Kind)
		}
	}
	return nil
}

// layer is the layer of a valid entry.
func (r *layerEntry) layer() shard.Layer {
	l := shard.Layer{Name: r.Name, Shape: r.Shape, Sparse: r.Sparse}
	l.DType, _ = parse[shard.DType](r.DType)
	l.Wire, _ = parse[shard.DType](r.Wire)
	if r.Init != nil {
		l.Init = shard.Initializer{Scale: r.Init.Scale, Seed: r.Init.Seed}
		l.Init.Kind, _ = parse[shard.InitKind](r.Init.Kind)
	}
	return l
}

// parse finds the value that calls itself text.
func parse[T interface {
	~uint8
	fmt.Stringer
}](text string) (T, bool) {
	for v := range T(16) {
		if v.String() == text && !strings.ContainsRune(text, '(') { // the parenthesis is in the name of an unknown one
			return v, true
		}
	}
	return 0, false
}

// validate reports the first fault of a manifest, whoever made it.
func (m *Manifest) validate() error {
	number, err := numberOf(m.Name)
	if err != nil {
		return err
	}
	if m.Parent != nil {
		parent, err := numberOf(m.Parent.Name)
		if err != nil {
			return err
		}
		if parent >= number {
			return fmt.Errorf("parent %s of %s, must be an earlier one", m.Parent.Name, m.Name)
		}
	}
	if len(m.Job) > MaxJobBytes {
		return fmt.Errorf("job of %d bytes, limit %d", len(m.Job), MaxJobBytes)
	}
	if len(m.Datasets) > MaxDatasetsBytes {
		return fmt.Errorf("datasets of %d bytes, limit %d", len(m.Datasets), MaxDatasetsBytes)
	}
	if err := m.Model.Validate(); err != nil {
		return err
	}
	for _, l := range m.Model.Layers {
		if !utf8.ValidString(l.Name) {
			return fmt.Errorf("layer %.64q: name is not UTF-8", l.Name)
		}
	}
	if err := m.validateShards(); err != nil {
		return err
	}
	return m.validateFiles()
}

// validateShards checks that the shards are the layers, cut at some places.
func (m *Manifest) validateShards() error {
	if len(m.Shards) > shard.MaxShards {
		return fmt.Errorf("%d shards, limit %d", len(m.Shards), shard.MaxShards)
	}
	next := 0
	for layer, l := range m.Model.Layers {
		for at := int64(0); at < l.Elems(); next++ {
			if next == len(m.Shards) {
				return fmt.Errorf("no shard has element %d of layer %q", at, l.Name)
			}
			s := m.Shards[next]
			if s.ID != shard.ID(next) || s.Range.Layer != layer || s.Range.Begin != at || s.Range.End <= at || s.Range.End > l.Elems() {
				return fmt.Errorf("shard %d is [%d, %d) of layer %d, must begin with element %d of layer %d, which has %d",
					s.ID, s.Range.Begin, s.Range.End, s.Range.Layer, at, layer, l.Elems())
			}
			if dim := dimOf(&l); dim > 0 && s.Range.End%int64(dim) != 0 {
				return fmt.Errorf("shard %d of layer %q ends with element %d, must end with a row of %d", next, l.Name, s.Range.End, dim)
			}
			at = s.Range.End
		}
	}
	if next < len(m.Shards) {
		return fmt.Errorf("%d shards, the layers end with the first %d", len(m.Shards), next)
	}
	return nil
}

// validateFiles checks that each shard is in one file.
func (m *Manifest) validateFiles() error {
	if len(m.Files) > MaxFiles {
		return fmt.Errorf("%d files, limit %d", len(m.Files), MaxFiles)
	}
	in := make([]bool, len(m.Shards))
	missing := len(in)
	names := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		if err := checkFileName(f.Name); err != nil {
			return err
		}
		if names[f.Name] {
			return fmt.Errorf("two files named %q", f.Name)
		}
		names[f.Name] = true
		if f.Bytes < 0 {
			return fmt.Errorf("file %q has %d bytes", f.Name, f.Bytes)
		}
		if !slices.IsSorted(f.Shards) {
			return fmt.Errorf("file %q: the shards do not ascend", f.Name)
		}
		for _, id := range f.Shards {
			if int64(id) >= int64(len(in)) {
				return fmt.Errorf("file %q holds shard %d of %d", f.Name, id, len(in))
			}
			if in[id] {
				return fmt.Errorf("file %q holds shard %d, as does another, or it holds it twice", f.Name, id)
			}
			in[id] = true
			missing--
		}
	}
	if missing > 0 {
		return fmt.Errorf("shard %d is in no file", slices.Index(in, false))
	}
	return nil
}

// checkFileName returns an error unless a file of a checkpoint may have the name.
func checkFileName(name string) error {
	if strings.Contains(name, "/") || name == manifestName {
		return fmt.Errorf("checkpoint: file name %.64q, must be other than %q and without '/'", name, manifestName)
	}
	return CheckObject(name)
}

const namePrefix = "ckpt-"

// nameOf is the name of the checkpoint with that number.
func nameOf(number uint64) string { return fmt.Sprintf("%s%08d", namePrefix, number) }

// numberOf is the number of the checkpoint of that name.
func numberOf(name string) (uint64, error) {
	digits, ok := strings.CutPrefix(name, namePrefix)
	number, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || nameOf(number) != name {
		return 0, fmt.Errorf("checkpoint: name %.64q, must be %q and a number of 8 digits or more", name, namePrefix)
	}
	return number, nil
}
