// Package configwatch tells when the files that a process was configured from
// may have changed: by inotify, and by a look now and then where that is silent.
package configfile

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options say when a Watcher looks.
type Options struct {
	// Settle is how long nothing more must happen to the files before they are
	// looked at: an editor or a kubelet takes several steps. A file that is
	// written to all the time is looked at every ten times Settle.
	Settle time.Duration
	// Every is how often the files are looked at although nothing was heard: a
	// network file system tells nothing of what other machines do.
	Every time.Duration
	// Warn is told what keeps the Watcher from hearing of changes; Every still
	// finds them.
	Warn func(error)
}

// Watcher watches files by the directories that their paths lead through, so
// that a file may be replaced by a rename, appear later, or be reached by
// symbolic links of which any is changed, such as Kubernetes' ..data.
type Watcher struct {
	opts  Options
	open  func() (*fsnotify.Watcher, error)
	moved chan struct{} // Watch was called; holds one

	mu    sync.Mutex // guards files
	files []string
}

// New returns a Watcher of no files; Run runs it.
func New(o Options) *Watcher {
	return &Watcher{opts: o, open: fsnotify.NewWatcher, moved: make(chan struct{}, 1)}
}

// Watch replaces the files that are watched. It may be called at any time.
func (w *Watcher) Watch(files []string) {
	w.mu.Lock()
	w.files = slices.Clone(files)
	w.mu.Unlock()
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

func (w *Watcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files
}

// Run calls look when the files may have changed, and once at first, until ctx
// ends. look has to find out whether they did; see Look.
func (w *Watcher) Run(ctx context.Context, look func()) {
	events, err := w.open()
	if err != nil {
		w.opts.Warn(fmt.Errorf("files are looked at every %v only: %w", w.opts.Every, err))
		events = &fsnotify.Watcher{} // its channels are nil, and stay silent
	} else {
		defer events.Close() //nolint:errcheck // nothing is left to be done about it
	}
	a := &alarm{events: events, heard: err == nil, warn: w.opts.Warn}
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	var settled, latest <-chan time.Time // nil while nothing happens
	for {
		// What happens from now on is heard; what happened before, look sees.
		settled, latest = nil, nil
		a.set(w.watched())
		look()
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case e := <-events.Events:
				if !a.concerns(e.Name) {
					continue
				}
			case err := <-events.Errors: // events were lost
				w.opts.Warn(err)
			case <-settled:
				waiting = false
			case <-latest:
				waiting = false
			case <-w.moved:
				waiting = false
			case <-tick.C:
				waiting = false
			}
			if waiting {
				settled = time.After(w.opts.Settle)
				if latest == nil {
					latest = time.After(10 * w.opts.Settle)
				}
			}
		}
	}
}

// alarm keeps the directories watched that files are reached through.
type alarm struct {
	events *fsnotify.Watcher
	heard  bool // events work
	warn   func(error)

	paths map[string]bool // whose events matter
	dirs  map[string]bool // that are watched
	deaf  map[string]bool // that cannot be watched, and were warned about
}

// concerns reports whether what happened to path may change a file's content.
func (a *alarm) concerns(path string) bool { return a.paths[filepath.Clean(path)] }

func (a *alarm) set(files []string) {
	if !a.heard {
		return
	}
	a.paths = make(map[string]bool)
	dirs := make(map[string]bool)
	for _, f := range files {
		for _, dir := range trace(f, a.paths) {
			dirs[dir] = true
		}
	}
	deaf := make(map[string]bool)
	for dir := range dirs {
		a.paths[dir] = true                       // of the directory itself: removed, renamed
		if err := a.events.Add(dir); err != nil { // no news for one that is watched
			if deaf[dir] = true; !a.deaf[dir] {
				a.warn(fmt.Errorf("changes in %s are not heard of at once: %w", dir, err))
			}
		}
	}
	for dir := range a.dirs {
		if !dirs[dir] {
			a.events.Remove(dir) //nolint:errcheck // it may have gone by itself
		}
	}
	a.dirs, a.deaf = dirs, deaf
}
