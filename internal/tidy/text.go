package tidy

import (
	"regexp"
	"strings"
)

// leftovers match what should not be published. They are spelled so that this file
// does not match.
var leftovers = []struct {
	pattern *regexp.Regexp
	what    string
}{
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`), "a note to oneself: do it or file an issue"},
	{regexp.MustCompile(`(^|[^\w.~-])/(ro` + `ot|ho` + `me)/`), "a path of somebody's machine"},
}

// checkText looks for leftovers in all files that are not binary.
func checkText(t *tree) []Fault {
	var faults []Fault
	for _, file := range t.texts {
		number := 0
		for line := range strings.Lines(string(file.content)) {
			number++
			for _, l := range leftovers {
				if found := l.pattern.FindString(line); found != "" {
					faults = append(faults, Fault{file.path, number, "text", strings.TrimSpace(found) + ": " + l.what})
				}
			}
		}
	}
	return faults
}
