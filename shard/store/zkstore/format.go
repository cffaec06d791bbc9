package zkstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticps/elasticps/shard/store"
)

// The nodes below the root. Their data is a CRC-32C of the node's name and the
// rest (4 bytes), and the rest; all integers are little-endian.
//
//	seq              format (4), revision (8), floor (8), steps: revision (8), kind (1), length (2), key
//	keys/KEY         revision (8), lease (8), value
//	leases/ID        duration in nanoseconds (8)
//	leases/ID/KEY    empty: this key is attached to the lease
//	sweeper          empty, ephemeral: whoever made it ends the leases that ran out
//
// KEY is the key in percent-encoding, ID is 16 hexadecimal digits.
const (
	journalNode = "seq"
	keysNode    = "keys"
	leasesNode  = "leases"
	sweeperNode = "sweeper"
	format      = 1
)

// maxJournalBytes and maxJournalSteps bound the history in the journal. Who is
// further behind lists all keys.
const (
	maxJournalBytes = 16 << 10
	maxJournalSteps = 256
)

func keyNode(key string) string { return keysNode + "/" + escape(key) }

func leaseNode(id store.LeaseID) string { return fmt.Sprintf("%s/%016x", leasesNode, uint64(id)) }

func attachNode(id store.LeaseID, key string) string { return leaseNode(id) + "/" + escape(key) }

// escape makes a node's name of a key. Names with dots have a meaning.
func escape(key string) string { return strings.ReplaceAll(url.PathEscape(key), ".", "%2E") }

// unescape refuses names that escape does not make.
func unescape(name string) (string, error) {
	key, err := url.PathUnescape(name)
	if err == nil {
		err = store.CheckKey(key)
	}
	if err == nil && escape(key) != name {
		err = errors.New("the name is not the one of its key")
	}
	return key, err
}

func parseLease(name string) (store.LeaseID, error) {
	id, err := strconv.ParseUint(name, 16, 64)
	if err == nil && fmt.Sprintf("%016x", id) != name {
		err = errors.New("the name is not the one of a lease")
	}
	return store.LeaseID(id), err
}

func seal(name string, rest []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, checksum(name, rest)), rest...)
}

// unseal returns what seal was given, which has at least atLeast bytes.
func unseal(name string, data []byte, atLeast int) ([]byte, error) {
	if len(data) < 4+atLeast {
		return nil, fmt.Errorf("%d bytes, at least %d needed", len(data), 4+atLeast)
	}
	if checksum(name, data[4:]) != binary.LittleEndian.Uint32(data) {
		return nil, errors.New("wrong checksum")
	}
	return data[4:], nil
}

func checksum(name string, rest []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(name), table), table, rest)
}

// entry is what a key's node holds.
type entry struct {
	revision store.Revision
	lease    store.LeaseID
	value    []byte
}

func (e entry) encode(key string) []byte {
	rest := binary.LittleEndian.AppendUint64(make([]byte, 0, 16+len(e.value)), uint64(e.revision))
	rest = binary.LittleEndian.AppendUint64(rest, uint64(e.lease))
	return seal(keyNode(key), append(rest, e.value...))
}

func decodeEntry(key string, data []byte) (entry, error) {
	rest, err := unseal(keyNode(key), data, 16)
	if err != nil {
		return entry{}, err
	}
	return entry{
		revision: store.Revision(binary.LittleEndian.Uint64(rest)),
		lease:    store.LeaseID(binary.LittleEndian.Uint64(rest[8:])),
		value:    rest[16:],
	}, store.CheckValue(rest[16:])
}

func encodeLease(id store.LeaseID, ttl time.Duration) []byte {
	return seal(leaseNode(id), binary.LittleEndian.AppendUint64(nil, uint64(ttl)))
}

func decodeLease(id store.LeaseID, data []byte) (time.Duration, error) {
	rest, err := unseal(leaseNode(id), data, 8)
	if err != nil {
		return 0, err
	}
	ttl := time.Duration(binary.LittleEndian.Uint64(rest))
	return ttl, store.CheckTTL(ttl)
}

// step is the change of one key.
type step struct {
	revision store.Revision
	kind     store.EventKind
	key      string
}

// journal is the revision of the store and its recent history: every change
// after the floor.
type journal struct {
	revision, floor store.Revision
	steps           []step
}

// next begins the next revision: what is recorded then belongs to it.
func (j *journal) next() store.Revision {
	j.revision++
	return j.revision
}

func (j *journal) record(kind store.EventKind, key string) {
	j.steps = append(j.steps, step{j.revision, kind, key})
}

// since returns the last change of each key with a prefix after a revision, in
// the order of revisions. It reports false if the journal does not go back so
// far.
func (j *journal) since(at store.Revision, prefix string) ([]step, bool) {
	if at < j.floor {
		return nil, false
	}
	var list []step
	seen := make(map[string]bool)
	for _, st := range slices.Backward(j.steps) {
		if st.revision > at && strings.HasPrefix(st.key, prefix) && !seen[st.key] {
			seen[st.key] = true
			list = append(list, st)
		}
	}
	slices.Reverse(list)
	return list, true
}

func (st step) size() int { return 11 + len(st.key) }

// encode drops the oldest revisions, whole ones, until the rest is within bounds.
func (j *journal) encode() []byte {
	size, kept := 0, len(j.steps)
	for kept > 0 && size+j.steps[kept-1].size() <= maxJournalBytes && len(j.steps)-kept < maxJournalSteps {
		kept--
		size += j.steps[kept].size()
	}
	if kept > 0 {
		j.floor = j.steps[kept-1].revision
		for kept < len(j.steps) && j.steps[kept].revision == j.floor {
			kept++
		}
		j.steps = j.steps[kept:]
	}
	rest := binary.LittleEndian.AppendUint32(make([]byte, 0, 20+size), format)
	rest = binary.LittleEndian.AppendUint64(rest, uint64(j.revision))
	rest = binary.LittleEndian.AppendUint64(rest, uint64(j.floor))
	for _, st := range j.steps {
		rest = binary.LittleEndian.AppendUint64(rest, uint64(st.revision))
		rest = append(rest, byte(st.kind))
		rest = binary.LittleEndian.AppendUint16(rest, uint16(len(st.key)))
		rest = append(rest, st.key...)
	}
	return seal(journalNode, rest)
}

func decodeJournal(data []byte) (*journal, error) {
	rest, err := unseal(journalNode, data, 20)
	if err != nil {
		return nil, err
	}
	if v := binary.LittleEndian.Uint32(rest); v != format {
		return nil, fmt.Errorf("format %d, this program reads %d", v, format)
	}
	j := &journal{
		revision: store.Revision(binary.LittleEndian.Uint64(rest[4:])),
		floor:    store.Revision(binary.LittleEndian.Uint64(rest[12:])),
	}
	for rest = rest[20:]; len(rest) > 0; {
		if len(rest) < 11 || len(rest) < 11+int(binary.LittleEndian.Uint16(rest[9:])) {
			return nil, errors.New("cut within a step")
		}
		st := step{revision: store.Revision(binary.LittleEndian.Uint64(rest)), kind: store.EventKind(rest[8])}
		st.key = string(rest[11 : 11+int(binary.LittleEndian.Uint16(rest[9:]))])
		if st.kind != store.Put && st.kind != store.Delete {
			return nil, fmt.Errorf("kind %d of a step", st.kind)
		}
		j.steps = append(j.steps, st)
		rest = rest[st.size():]
	}
	return j, nil
}
