package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"adbuffer/internal/app"
	"adbuffer/internal/config"
)

// difference is a file, held against a running adbuffer.
type difference struct {
	URL     string       `json:"url"`
	Version string       `json:"version"` // of the running adbuffer
	Hash    string       `json:"hash"`    // of the configuration in force
	Verdict verdict      `json:"verdict"`
	Changes []app.Change `json:"changes"`
	// HiddenDiffers: what is shown is equal, and what the admin listener hides
	// is not: the value of a header field, or of a parameter of an endpoint.
	HiddenDiffers bool `json:"hidden_value_differs"`
}

// verdict is what a reload of the file would come to.
type verdict string

const (
	verdictUnchanged verdict = "unchanged"
	verdictReload    verdict = "reload"
	verdictRestart   verdict = "restart" // a reload would be refused
)

// errSaid fails a command that has printed why.
var errSaid = failed(errors.New(""))

// failure is not nil where a reload would be refused. c may be nil.
func (c *difference) failure() error {
	if c != nil && c.Verdict == verdictRestart {
		return errSaid
	}
	return nil
}

// against compares cfg with what the adbuffer behind c has in force.
func against(ctx context.Context, c *adminClient, cfg *config.Config) (*difference, error) {
	now, err := c.running(ctx)
	if err != nil {
		return nil, err
	}
	changes, err := app.CompareYAML(now.yaml, cfg.YAMLWithSecrets())
	if err != nil {
		return nil, fmt.Errorf("%s/config: %w", c.base, err)
	}
	res := &difference{URL: c.base, Version: now.version, Hash: now.hash, Changes: changes, Verdict: verdictReload}
	switch {
	case slices.ContainsFunc(changes, func(ch app.Change) bool { return ch.Effect == app.Restart }):
		res.Verdict = verdictRestart
	case len(changes) == 0 && now.hash == cfg.Hash():
		res.Verdict = verdictUnchanged
	case len(changes) == 0:
		res.HiddenDiffers = true
	}
	return res, nil
}

// write prints a table for people, and the verdict.
func (c *difference) write(w io.Writer, file string, quiet bool) {
	if len(c.Changes) > 0 && !quiet {
		table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
		fmt.Fprintln(table, "SETTING\tRUNNING\tFILE\tA RELOAD")
		for _, ch := range c.Changes {
			was, is := cells(ch.Old, ch.New)
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", ch.Path, was, is, effectText(&ch))
		}
		table.Flush() //nolint:errcheck // who reads it has gone
	}
	if c.Version != app.Version {
		fmt.Fprintf(w, "# %s runs version %s, and this is %s: settings that only one of them knows are among the changes\n", c.URL, c.Version, app.Version)
	}
	switch {
	case c.Verdict == verdictUnchanged:
		fmt.Fprintf(w, "# %s has what %s says: a reload would change nothing\n", c.URL, file)
	case c.Verdict == verdictRestart:
		fmt.Fprintf(w, "# a restart is needed for %s; a reload would be refused and change nothing\n", strings.Join(c.needRestart(), ", "))
	case c.HiddenDiffers:
		fmt.Fprintln(w, "# a hidden value differs (of a header field, or of a parameter of an endpoint): a reload would apply it")
	default:
		fmt.Fprintf(w, "# a reload would apply %s\n", c.counts())
	}
}

// needRestart are the settings that a reload cannot change.
func (c *difference) needRestart() (paths []string) {
	for _, ch := range c.Changes {
		if ch.Effect == app.Restart {
			paths = append(paths, ch.Path)
		}
	}
	return paths
}

// counts says how many changes have which effect, in the order of the table.
func (c *difference) counts() string {
	var order []string
	n := map[string]int{}
	for _, ch := range c.Changes {
		text := effectText(&ch)
		if n[text] == 0 {
			order = append(order, text)
		}
		n[text]++
	}
	for i, text := range order {
		order[i] = fmt.Sprintf("%d %s", n[text], text)
	}
	changes := "1 change"
	if len(c.Changes) != 1 {
		changes = fmt.Sprintf("%d changes", len(c.Changes))
	}
	return changes + ": " + strings.Join(order, ", ")
}

func effectText(ch *app.Change) string {
	switch {
	case ch.Effect == app.Restart:
		return "needs a restart"
	case ch.Effect == app.NewPool && strings.HasSuffix(ch.Path, "]"):
		return "added, with a pool of its own"
	case ch.Effect == app.PoolDrains:
		return "removed, its pool drains"
	case ch.Effect == app.NewPool:
		return "new pool, the old one drains"
	default:
		return string(ch.Effect)
	}
}

// A cell of the table is at most cellWidth characters wide, and of what two long
// values begin with alike only cellContext are left.
const (
	cellWidth   = 60
	cellContext = 20
)

// cells are two values as the table shows them: cut, but not where they differ.
func cells(was, is string) (string, string) {
	a, b := []rune(was), []rune(is)
	if max(len(a), len(b)) > cellWidth {
		same := 0
		for same < min(len(a), len(b)) && a[same] == b[same] {
			same++
		}
		if from := same - cellContext; from > 0 {
			a, b = append([]rune("…"), a[from:]...), append([]rune("…"), b[from:]...)
		}
	}
	return cell(a), cell(b)
}

func cell(r []rune) string {
	switch {
	case len(r) == 0:
		return "-"
	case len(r) > cellWidth:
		return string(r[:cellWidth-1]) + "…"
	}
	return string(r)
}
