package reload

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"adbuffer/internal/setup/config"
)

// Check is the result of a dry run. The admin listener responds with it, and check --json prints it.
type Check struct {
	Valid    bool             `json:"valid"`
	Hash     string           `json:"hash,omitempty"` // of the effective configuration, as in the metric config_info
	Faults   config.Errors    `json:"faults"`
	Warnings []config.Warning `json:"warnings"`
	Against  *Difference      `json:"against,omitempty"` // nil if the configuration has errors, or is compared with none
}

// NewCheck returns the result for cfg. It is without errors if err is nil. An error that is not
// config.Errors is an error of the whole configuration.
func NewCheck(cfg *config.Config, warnings []config.Warning, err error) *Check {
	c := &Check{Valid: err == nil, Faults: config.Errors{}, Warnings: append([]config.Warning{}, warnings...)}
	if err != nil && !errors.As(err, &c.Faults) {
		c.Faults = config.Errors{{Rule: err.Error()}}
	}
	if err == nil {
		c.Hash = cfg.Hash()
	}
	return c
}

// Hide replaces these values wherever the result shows them.
func (c *Check) Hide(values []string) {
	var pairs []string
	for _, value := range values {
		pairs = append(pairs, value, config.Hidden)
	}
	hidden := strings.NewReplacer(pairs...)
	hide := func(texts ...*string) {
		for _, text := range texts {
			*text = hidden.Replace(*text)
		}
	}
	for i := range c.Faults {
		hide(&c.Faults[i].Path, &c.Faults[i].Value, &c.Faults[i].Rule)
	}
	for i := range c.Warnings {
		hide(&c.Warnings[i].Path, &c.Warnings[i].Text)
	}
	if c.Against != nil {
		for i := range c.Against.Changes {
			hide(&c.Against.Changes[i].Path, &c.Against.Changes[i].Old, &c.Against.Changes[i].New)
		}
	}
}

// Difference is the effect that a reload of a configuration would have on a running adbuffer.
type Difference struct {
	URL     string          `json:"url"`     // of the admin listener; only a client knows it
	Version string          `json:"version"` // of the running adbuffer
	Hash    string          `json:"hash"`    // of the configuration in force
	Verdict Verdict         `json:"verdict"`
	Changes []config.Change `json:"changes"`
}

// Verdict is the result that a reload would have.
type Verdict string

// The verdicts. A reload that needs a restart is refused and changes nothing.
const (
	Unchanged    Verdict = "unchanged"
	Applies      Verdict = "reload"
	NeedsRestart Verdict = "restart"
)

// DryRun returns what Replace(cfg) would do, with the content of the files that cfg names. It changes
// nothing and opens no connection. Its errors are those of Replace, except that a change which needs
// a restart is a verdict.
func (v *Versions) DryRun(cfg *config.Config) (*Difference, error) {
	v.reloading.Lock()
	defer v.reloading.Unlock()
	if v.serving.Err() != nil {
		return nil, ErrStopping
	}
	was := v.Current()
	d := &Difference{Version: v.opts.AppVersion, Hash: was.Hash, Verdict: Unchanged}
	p, err := v.prepare(was, cfg, config.Compare(was.Config, cfg))
	if err != nil {
		return nil, err
	}
	p.drop()
	d.Changes = append([]config.Change{}, p.changes...)
	switch {
	case len(d.needRestart()) > 0:
		d.Verdict = NeedsRestart
	case len(d.Changes) > 0:
		d.Verdict = Applies
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
		fmt.Fprintf(w, "# %s runs version %s, and this is %s: the former has checked the file\n", d.URL, d.Version, own)
	}
	switch d.Verdict {
	case Unchanged:
		fmt.Fprintf(w, "# %s has the same configuration as %s: a reload would change nothing\n", d.URL, file)
	case NeedsRestart:
		fmt.Fprintf(w, "# a restart is needed for %s; a reload would be refused and change nothing\n", strings.Join(d.needRestart(), ", "))
	default:
		fmt.Fprintf(w, "# a reload would apply %s\n", d.counts())
	}
}

// needRestart are the settings that a reload cannot change.
func (d *Difference) needRestart() (paths []string) {
	for _, ch := range d.Changes {
		if ch.Effect == config.Restart {
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

func effectText(ch *config.Change) string {
	switch {
	case ch.Effect == config.Restart:
		return "needs a restart"
	case ch.Effect == config.NewPool && strings.HasSuffix(ch.Path, "]"):
		return "added, with a pool of its own"
	case ch.Effect == config.PoolDrains:
		return "removed, its pool drains"
	case ch.Effect == config.NewPool:
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
