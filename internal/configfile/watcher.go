package configfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options say when a Watcher reads files.
type Options struct {
	// Settle is how long the files must be quiet after an event before the Watcher looks:
	// an editor or a kubelet changes a file in several steps. If the events do not
	// stop, it looks after ten times Settle.
	Settle time.Duration
	// Every is how often the Watcher looks without an event: a network file system
	// raises none for changes by other machines.
	Every time.Duration
	// Warn is called with errors that prevent events. The look at Every still finds changes.
	Warn func(error)
}

// Watcher watches the directories that the paths of files lead through. So it notices a file that
// is created later or replaced by a rename. It also notices a changed symbolic link in the path,
// such as Kubernetes' ..data.
type Watcher struct {
	opts  Options
	open  func() (*fsnotify.Watcher, error)
	moved chan struct{} // Watch was called; capacity 1

	mu    sync.Mutex // guards files
	files []string
}

// New returns a Watcher of no files. Run runs it.
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

// Run calls look once at first, and then when the files may have changed, until ctx ends.
// look must find out whether they did; see Look.
func (w *Watcher) Run(ctx context.Context, look func()) {
	events, err := w.open()
	if err != nil {
		w.opts.Warn(fmt.Errorf("changed files are noticed every %v only: %w", w.opts.Every, err))
		events = &fsnotify.Watcher{} // its channels are nil and never ready
	} else {
		defer events.Close()
	}
	a := &alarm{events: events, add: events.Add, works: err == nil, warn: w.opts.Warn}
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	var settled, latest <-chan time.Time // nil without an event
	for {
		// Changes from now on raise events; look finds earlier changes.
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

// maxTraces bounds the traces of paths that change meanwhile. A later change of a watched directory
// raises an event, which leads to the next look.
const maxTraces = 10

// alarm watches the directories that the paths of files lead through.
type alarm struct {
	events *fsnotify.Watcher
	add    func(dir string) error // watches a directory; no effect if it is watched already
	works  bool                   // inotify works
	warn   func(error)

	paths     map[string]bool // paths whose events matter
	dirs      map[string]bool // directories that are watched
	unwatched map[string]bool // directories that cannot be watched; a warning was given
}

// concerns reports whether an event at path may change a file's content.
func (a *alarm) concerns(path string) bool { return a.paths[filepath.Clean(path)] }

// set watches the directories of files. A path may change after its trace and before its
// directories are watched. This raises no event, so set repeats the trace until it changes nothing.
func (a *alarm) set(files []string) {
	if !a.works {
		return
	}
	var dirs map[string]bool
	var unwatched map[string]error
	old := a.dirs
	for range maxTraces {
		dirs, unwatched = a.trace(files), make(map[string]error)
		removed := false
		for dir := range dirs {
			if err := a.add(dir); err != nil {
				unwatched[dir] = err
				removed = removed || errors.Is(err, fs.ErrNotExist)
			}
		}
		a.leave(old, dirs)
		if old = dirs; !removed && maps.Equal(dirs, a.trace(files)) {
			break
		}
	}
	known := a.unwatched
	a.dirs, a.unwatched = dirs, make(map[string]bool)
	for dir, err := range unwatched {
		if a.unwatched[dir] = true; !known[dir] {
			a.warn(fmt.Errorf("changes in %s are not noticed at once: %w", dir, err))
		}
	}
}

// trace returns the directories that the paths of files lead through, and replaces a.paths.
func (a *alarm) trace(files []string) map[string]bool {
	a.paths = make(map[string]bool)
	dirs := make(map[string]bool)
	for _, f := range files {
		for _, dir := range trace(f, a.paths) {
			dirs[dir] = true
		}
	}
	for dir := range dirs {
		a.paths[dir] = true // the directory itself may be removed or renamed
	}
	return dirs
}

// leave stops watching the directories of old that are not in dirs.
func (a *alarm) leave(old, dirs map[string]bool) {
	for dir := range old {
		if !dirs[dir] {
			a.events.Remove(dir) //nolint:errcheck // the directory may be gone
		}
	}
}
