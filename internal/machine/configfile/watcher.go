package configfile

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// WatchEvery is the time between two polls, in which the file system's records of the watched files are compared.
const WatchEvery = time.Second

// readEvery is the number of polls after which the watched files are read even if no record has changed, since
// content may change without its record. Files whose records never settle are read after twice as many polls.
const readEvery = 10

// Watcher watches files that may be replaced, or reached through symbolic links, as in Kubernetes' volumes. It polls,
// since network file systems and mounts of single files send no notifications.
type Watcher struct {
	files atomic.Pointer[[]string]
}

// Watch sets the files to watch, in place of the previous ones. It must be called once before Run, and may be called
// again at any time.
func (w *Watcher) Watch(files []string) {
	files = slices.Clone(files)
	w.files.Store(&files)
}

// Run calls look once at the start, and then each time that the watched files may have changed, until ctx ends. look
// must find out whether they have; see Look.
func (w *Watcher) Run(ctx context.Context, look func()) {
	look()
	poll(ctx, func() []string { return *w.files.Load() }, look)
}

// poll calls look when the records of files have changed, until ctx ends. An editor or a kubelet changes files in
// several steps, so poll waits until the records are the same in two polls in a row.
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

// stamp is what the file system records about a file.
type stamp struct {
	id       FileID
	size     int64
	modified int64 // nanoseconds since 1970; 0 = the file is missing
}

func stampsOf(files []string) map[string]stamp {
	all := make(map[string]stamp, len(files))
	for _, name := range files {
		all[name] = stamp{}
		if info, err := Stat(name); err == nil {
			all[name] = stamp{FileIDOf(info), info.Size(), info.ModTime().UnixNano()}
		}
	}
	return all
}
