package reload

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"adbuffer/internal/setup/config"
)

// Check is the result of a dry run: the JSON of the admin listener's response, and of check --json.
type Check struct {
	Valid    bool             `json:"valid"`
	Hash     string           `json:"hash,omitempty"` // hash of the effective configuration, as in adbuffer_config_info
	Faults   config.Errors    `json:"faults"`
	Warnings []config.Warning `json:"warnings"`
	Against  *Difference      `json:"against,omitempty"` // nil if the configuration has errors, or no adbuffer was asked
}

// NewCheck returns the result for cfg, which is valid if err is nil. An error that is not of type
// config.Errors becomes an error of the whole configuration.
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

// Hider returns a function that replaces the given values by config.Hidden.
func Hider(values []string) (hide func(texts ...*string)) {
	var pairs []string
	for _, value := range values {
		pairs = append(pairs, value, config.Hidden)
	}
	hidden := strings.NewReplacer(pairs...)
	return func(texts ...*string) {
		for _, text := range texts {
			*text = hidden.Replace(*text)
		}
	}
}

// Hide hides what a Hider hides.
func (c *Check) Hide(hide func(texts ...*string)) {
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
	URL     string          `json:"url"`     // URL of the admin listener; set by the client that asked it
	Version string          `json:"version"` // version of the running adbuffer
	Hash    string          `json:"hash"`    // hash of the configuration in force
	Verdict Verdict         `json:"verdict"`
	Changes []config.Change `json:"changes"`
}

// Verdict says what a reload would do.
type Verdict string

// The verdicts. With NeedsRestart, a reload would be refused and change nothing.
const (
	Unchanged    Verdict = "unchanged"
	Applies      Verdict = "reload"
	NeedsRestart Verdict = "restart"
)

// DryRun returns what Replace(cfg) would do, given the current content of the files that cfg names. It
// changes nothing and opens no connection. It returns the errors that Replace would return, except that
// a change which needs a restart is a verdict and no error.
func (v *Versions) DryRun(cfg *config.Config) (*Difference, error) {
	v.reloading.Lock()
	defer v.reloading.Unlock()
	if v.serving.Err() != nil {
		return nil, ErrStopping
	}
	was := v.Current()
	d := &Difference{Version: v.opts.AppVersion, Hash: was.Hash(), Verdict: Unchanged}
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

// Write prints a table of the changes, unless quiet, and then the verdict on the file. own is the version
// of this binary.
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
		fmt.Fprintf(w, "# %s runs version %s and has checked the file; this binary is version %s\n", d.URL, d.Version, own)
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

// needRestart returns the changed settings that need a restart.
func (d *Difference) needRestart() (paths []string) {
	for _, ch := range d.Changes {
		if ch.Effect == config.Restart {
			paths = append(paths, ch.Path)
		}
	}
	return paths
}

// counts says how many changes have each effect, in the order of the table.
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

// A cell of the table is at most cellWidth characters wide. Of a prefix that two long values share, it
// shows only the last cellContext characters.
const (
	cellWidth   = 60
	cellContext = 20
)

// cells shortens two values for the table, so that the first difference between them stays visible.
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
