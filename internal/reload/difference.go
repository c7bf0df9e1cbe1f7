package reload

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"adbuffer/internal/admin"
	"adbuffer/internal/config"
)

// Difference is the effect that a reload of a file would have on a running adbuffer.
type Difference struct {
	URL     string   `json:"url"`
	Version string   `json:"version"` // of the running adbuffer
	Hash    string   `json:"hash"`    // of the configuration in force
	Verdict Verdict  `json:"verdict"`
	Changes []Change `json:"changes"`
	// HiddenDiffers: all values that the admin listener shows are equal, but a value that it hides
	// differs. It belongs to a header field, or to a parameter of an endpoint.
	HiddenDiffers bool `json:"hidden_value_differs"`
}

// Verdict is the result that a reload would have.
type Verdict string

// The verdicts. A reload that needs a restart is refused and changes nothing.
const (
	Unchanged    Verdict = "unchanged"
	Applies      Verdict = "reload"
	NeedsRestart Verdict = "restart"
)

// Against compares cfg with the configuration in force at a running adbuffer.
func Against(ctx context.Context, c *admin.Client, cfg *config.Config) (*Difference, error) {
	now, err := c.Running(ctx)
	if err != nil {
		return nil, err
	}
	changes, err := compareYAML(now.YAML, cfg.YAMLWithSecrets())
	if err != nil {
		return nil, fmt.Errorf("%s/config: %w", c.URL(), err)
	}
	d := &Difference{URL: c.URL(), Version: now.Version, Hash: now.Hash, Changes: changes, Verdict: Applies}
	switch {
	case len(d.needRestart()) > 0:
		d.Verdict = NeedsRestart
	case len(changes) == 0 && now.Hash == cfg.Hash():
		d.Verdict = Unchanged
	case len(changes) == 0:
		d.HiddenDiffers = true
	}
	return d, nil
}

// Write prints the verdict on the file and, unless quiet, a table of the changes before it. own is
// the version of this binary.
func (d *Difference) Write(w io.Writer, file, own string, quiet bool) {
	if len(d.Changes) > 0 && !quiet {
		table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
		fmt.Fprintln(table, "SETTING\tRUNNING\tFILE\tA RELOAD")
		for _, ch := range d.Changes {
			was, is := cells(ch.Old, ch.New)
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", ch.Path, was, is, effectText(&ch))
		}
		table.Flush()
	}
	if d.Version != own {
		fmt.Fprintf(w, "# %s runs version %s, and this is %s: settings that only one of them knows are among the changes\n", d.URL, d.Version, own)
	}
	switch {
	case d.Verdict == Unchanged:
		fmt.Fprintf(w, "# %s has the same configuration as %s: a reload would change nothing\n", d.URL, file)
	case d.Verdict == NeedsRestart:
		fmt.Fprintf(w, "# a restart is needed for %s; a reload would be refused and change nothing\n", strings.Join(d.needRestart(), ", "))
	case d.HiddenDiffers:
		fmt.Fprintln(w, "# a hidden value differs (of a header field, or of a parameter of an endpoint): a reload would apply it")
	default:
		fmt.Fprintf(w, "# a reload would apply %s\n", d.counts())
	}
}

// needRestart are the settings that a reload cannot change.
func (d *Difference) needRestart() (paths []string) {
	for _, ch := range d.Changes {
		if ch.Effect == Restart {
			paths = append(paths, ch.Path)
		}
	}
	return paths
}

// counts returns the number of changes with each effect, in the order of the table.
func (d *Difference) counts() string {
	var order []string
	n := map[string]int{}
	for _, ch := range d.Changes {
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
	if len(d.Changes) != 1 {
		changes = fmt.Sprintf("%d changes", len(d.Changes))
	}
	return changes + ": " + strings.Join(order, ", ")
}

func effectText(ch *Change) string {
	switch {
	case ch.Effect == Restart:
		return "needs a restart"
	case ch.Effect == NewPool && strings.HasSuffix(ch.Path, "]"):
		return "added, with a pool of its own"
	case ch.Effect == PoolDrains:
		return "removed, its pool drains"
	case ch.Effect == NewPool:
		return "new pool, the old one drains"
	default:
		return string(ch.Effect)
	}
}

// A cell of the table is at most cellWidth characters wide. If two long values begin in the same
// way, it shows only the last cellContext characters of that beginning.
const (
	cellWidth   = 60
	cellContext = 20
)

// cells cuts two values for the table. It keeps the part in which they differ.
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
