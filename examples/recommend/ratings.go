package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/elasticps/elasticps/shard"
)

// rating is what a user thinks of an item.
type rating struct {
	user, item int64
	value      float32
}

// fieldError says what is wrong with one line.
type fieldError struct {
	field string // "user", "item", "rating", "time", or "line"
	text  string // as it is there, at most shownBytes of it
	want  string
}

// Error names the field, what is there and what should be.
func (e *fieldError) Error() string {
	return fmt.Sprintf("field %s is %q, want %s", e.field, e.text, e.want)
}

const (
	shownBytes = 32
	// maxRating bounds the absolute value of a rating.
	maxRating = 1000
	// maxRatings bounds what is kept in memory.
	maxRatings = 1 << 28
)

func badField(field string, text []byte, want string) error {
	return &fieldError{field: field, text: string(text[:min(len(text), shownBytes)]), want: want}
}

// parseLine reads a line of MovieLens' u.data without its end: the ids of a user and an
// item, the rating and the time, between tabs. The error is a *fieldError.
func parseLine(line []byte) (r rating, err error) {
	fields := bytes.Split(line, []byte{'\t'})
	if len(fields) != 4 {
		return r, badField("line", line, fmt.Sprintf("4 fields between tabs, not %d", len(fields)))
	}
	if r.user, err = strconv.ParseInt(string(fields[0]), 10, 64); err != nil {
		return r, badField("user", fields[0], "an integer of 64 bits")
	}
	if r.item, err = strconv.ParseInt(string(fields[1]), 10, 64); err != nil {
		return r, badField("item", fields[1], "an integer of 64 bits")
	}
	value, err := strconv.ParseFloat(string(fields[2]), 32)
	if err != nil || !(math.Abs(value) <= maxRating) {
		return r, badField("rating", fields[2], fmt.Sprintf("a number from -%d to %d", maxRating, maxRating))
	}
	if _, err := strconv.ParseInt(string(fields[3]), 10, 64); err != nil {
		return r, badField("time", fields[3], "an integer of 64 bits")
	}
	r.value = float32(value)
	return r, nil
}

// readRatings reads a file in the format of MovieLens' u.data. The error names the line.
func readRatings(name string, in io.Reader) (all []rating, err error) {
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		r, err := parseLine(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("recommend: %s: line %d: %w", name, n, err)
		}
		if len(all) == maxRatings {
			return nil, fmt.Errorf("recommend: %s: line %d: more than %d ratings", name, n, maxRatings)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("recommend: %s: after %d lines: %w", name, len(all), err)
	}
	return all, nil
}

// The planted model. Its ratings have a standard deviation of about 1.1 around the mean, of
// which the noise is what nobody can predict.
const (
	plantedMean  = 3.5
	plantedDim   = 4
	plantedBias  = 0.4 // standard deviation of a bias
	plantedShare = 0.8 // of the product of two factors
	plantedNoise = 0.5
)

// plant draws n ratings by users of items, and returns them with what the model predicts
// for each. Users are equally busy, items are as popular as Zipf's law says.
func plant(n, numUsers, numItems int, seed uint64) (all []rating, truth []float32) {
	rng := rand.New(rand.NewPCG(seed, 0))
	users, items := vectors(numUsers, rng), vectors(numItems, rng)
	all, truth = make([]rating, n), make([]float32, n)
	for i := range all {
		user := rng.IntN(numUsers)
		item := int(math.Exp(rng.Float64()*math.Log(float64(numItems)+1))) - 1
		item = min(item, numItems-1)
		u, v := users[user], items[item]
		mean := plantedMean + plantedBias*(u[plantedDim]+v[plantedDim])
		for k := range plantedDim {
			mean += plantedShare / math.Sqrt(plantedDim) * u[k] * v[k]
		}
		truth[i] = float32(mean)
		all[i] = rating{int64(user), int64(item), float32(mean + plantedNoise*rng.NormFloat64())}
	}
	return all, truth
}

// vectors draws factors, and a bias behind each.
func vectors(n int, rng *rand.Rand) [][plantedDim + 1]float64 {
	v := make([][plantedDim + 1]float64, n)
	for i := range v {
		for k := range v[i] {
			v[i][k] = rng.NormFloat64()
		}
	}
	return v
}

// split holds a share of the ratings out, by the seed and who rated what, so that a pair of
// user and item is on one side only. truth, which may be nil, is split alike. The others are
// shuffled: ratings that are next to each other will be in one batch, and those of one user
// are in many files.
func split(all []rating, truth []float32, share float64, seed uint64) (train, test []rating, testTruth []float32, err error) {
	for i, r := range all {
		h := shard.Hash(int64(shard.Hash(r.user^int64(seed))) + r.item)
		if float64(h>>11)/(1<<53) >= share {
			train = append(train, r)
			continue
		}
		test = append(test, r)
		if truth != nil {
			testTruth = append(testTruth, truth[i])
		}
	}
	if len(train) == 0 || len(test) == 0 {
		return nil, nil, nil, errors.New("recommend: too few ratings to train on some and to test on others")
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(train), func(i, j int) { train[i], train[j] = train[j], train[i] })
	return train, test, testTruth, nil
}
