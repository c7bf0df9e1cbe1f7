package configfile

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// WatchEvery is the time between two looks at the file system's records of watched files.
const WatchEvery = time.Second

// readEvery is the number of polls after which the watched files are read in any case: a record may
// stay the same although the content changes. Files that change without end are read after twice as
// many polls.
const readEvery = 10

// Watcher watches files that may be replaced, or reached through symbolic links, such as Kubernetes'
// volumes. It polls, since network file systems and mounts of single files raise no events.
type Watcher struct {
	mu    sync.Mutex // guards files
	files []string
}

// Watch replaces the files that are watched. It may be called at any time.
func (w *Watcher) Watch(files []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = slices.Clone(files)
}

func (w *Watcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files
}

// Run calls look once at first, and then when the files may have changed, until ctx ends.
// look must find out whether they did; see Look.
func (w *Watcher) Run(ctx context.Context, look func()) {
	look()
	poll(ctx, w.watched, look)
}

// poll calls look when the records of files have changed, until ctx ends. An editor or a kubelet
// changes files in several steps, so poll waits until two records in a row are the same.
func poll(ctx context.Context, files func() []string, look func()) {
	tick := time.NewTicker(WatchEvery)
	defer tick.Stop()
	var before, looked map[string]stamp
	for polls := 1; ; polls++ { // since the last look
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := stampsOf(files())
		settled := maps.Equal(now, before)
		before = now
		if settled && (polls >= readEvery || !maps.Equal(now, looked)) || polls >= 2*readEvery {
			polls, looked = 0, now
			look()
		}
	}
}

// stamp is the file system's record of a file.
type stamp struct {
	id       FileID
	size     int64
	modified int64 // nanoseconds since 1970; 0 = the file is missing
}

func stampsOf(files []string) map[string]stamp {
	all := make(map[string]stamp, len(files))
	for _, name := range files {
		all[name] = stamp{}
		if info, err := os.Stat(name); err == nil {
			all[name] = stamp{FileIDOf(info), info.Size(), info.ModTime().UnixNano()}
		}
	}
	return all
}
