package pipeline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// Problem is one thing that is wrong with a document.
type Problem struct {
	// Path is where in the document, such as "resources[1].cursor"; empty for
	// the document itself.
	Path string `json:"path"`
	// Line and Column count from 1; 0 if the problem has no place of its own.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Message says what is wrong, Hint what to do about it.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String writes the problem on one line: place, path, message, hint.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Error holds every problem that was found in one document, in document order.
// It is a permanent error: the user changes the file.
type Error struct {
	// File is the document's file name; may be empty.
	File     string
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
		if e.File != "" {
			sep := ": "
			if p.Line > 0 {
				sep = ":"
			}
			lines[i] = e.File + sep + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets engine.ClassOf see a permanent error.
func (e *Error) Unwrap() error {
	return &engine.Error{Class: engine.Permanent, Err: errDocument}
}

var errDocument = errors.New("the pipeline document is not valid")

// nearest returns the known name that differs least from name, or "" if none is
// near enough to be what was meant.
func nearest(name string, known []string) string {
	best, bestDistance := "", len(name)/3+2
	for _, k := range known {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the least number of letters to add, drop, change or swap with
// their neighbour to get from a to b.
func distance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	rows := make([][]int, len(ra)+1)
	for i := range rows {
		rows[i] = make([]int, len(rb)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(ra); i++ {
		for j := 1; j <= len(rb); j++ {
			change := 1
			if ra[i-1] == rb[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(ra)][len(rb)]
}
