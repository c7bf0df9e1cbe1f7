package configfile

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
)

// Keeper keeps the content of TLS files, so that a running process can use renewed ones. Invalid
// files change nothing.
type Keeper struct {
	files   TLSFiles
	current atomic.Pointer[Material] // never nil
	good    atomic.Bool

	mu   sync.Mutex       // guards seen; held while files are read
	seen map[string]stamp // of the files when they were last read
}

// Keep reads the files, which must be valid.
func Keep(files TLSFiles) (*Keeper, error) {
	k := &Keeper{files: files, seen: stampsOf(files.names())}
	m, err := files.Load()
	if err != nil {
		return nil, err
	}
	k.current.Store(m)
	k.good.Store(true)
	return k, nil
}

// Current returns the content of the files when they were last valid.
func (k *Keeper) Current() *Material { return k.current.Load() }

// Good reports whether the files were valid when they were last read.
func (k *Keeper) Good() bool { return k.good.Load() }

// Reload reads the files now. changed reports whether Current is new. If TLSFiles.Load fails,
// Reload returns its error and Current stays.
func (k *Keeper) Reload() (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reloadLocked()
}

func (k *Keeper) reloadLocked() (changed bool, err error) {
	k.seen = stampsOf(k.files.names()) // taken first, so that the next look finds a change made meanwhile
	m, err := k.files.Load()
	k.good.Store(err == nil)
	if err != nil || m.Digest == k.Current().Digest {
		return false, err
	}
	k.current.Store(m)
	return true, nil
}

// Check is Reload if the file system shows that a file changed since it was last
// read, so it reports an invalid version once. It returns at once while another
// goroutine reads the files.
func (k *Keeper) Check() (changed bool, err error) {
	if !k.mu.TryLock() {
		return false, nil
	}
	defer k.mu.Unlock()
	if maps.Equal(stampsOf(k.files.names()), k.seen) {
		return false, nil
	}
	return k.reloadLocked()
}

// Watch calls loaded after each attempt to load files that changed, until ctx ends.
func (k *Keeper) Watch(ctx context.Context, loaded func(changed bool, err error)) {
	poll(ctx, k.files.names, func() {
		if changed, err := k.Check(); changed || err != nil {
			loaded(changed, err)
		}
	})
}

func (f TLSFiles) names() []string { return []string{f.Cert, f.Key, f.CA} }
