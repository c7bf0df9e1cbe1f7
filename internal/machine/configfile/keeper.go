package configfile

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
)

// Keeper holds the last valid content of TLS files, so that a running process can use renewed certificates. Files
// that have become invalid do not replace that content.
type Keeper struct {
	files   TLSFiles
	current atomic.Pointer[Material] // never nil
	valid   atomic.Bool

	mu   sync.Mutex       // guards seen; held while files are read
	seen map[string]stamp // file system's records of the files, from when the files were last read
}

// Keep reads the files, and returns an error if they are not valid.
func Keep(files TLSFiles) (*Keeper, error) {
	k := &Keeper{files: files, seen: stampsOf(files.names())}
	m, err := files.Load()
	if err != nil {
		return nil, err
	}
	k.current.Store(m)
	k.valid.Store(true)
	return k, nil
}

// Current returns the content of the files when they were last valid.
func (k *Keeper) Current() *Material { return k.current.Load() }

// Valid reports whether the files were valid when they were last read.
func (k *Keeper) Valid() bool { return k.valid.Load() }

// Reload reads the files now. changed reports whether Current has changed. If TLSFiles.Load fails, Reload returns the
// error of Load, and Current stays as it was.
func (k *Keeper) Reload() (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reloadLocked()
}

func (k *Keeper) reloadLocked() (changed bool, err error) {
	k.seen = stampsOf(k.files.names()) // taken before the files are read, so that the next Check notices a change during the reading
	m, err := k.files.Load()
	k.valid.Store(err == nil)
	if err != nil || m.Digest == k.Current().Digest {
		return false, err
	}
	k.current.Store(m)
	return true, nil
}

// Check calls Reload if the sizes or times of the files are not those of the last Reload. A version of the files that
// is invalid is therefore reported once. While another goroutine reads the files, Check returns without doing anything.
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

// Watch calls Check when the files may have changed, until ctx ends. It calls loaded with the result if Current has
// changed or the files are invalid.
func (k *Keeper) Watch(ctx context.Context, loaded func(changed bool, err error)) {
	poll(ctx, k.files.names, func() {
		if changed, err := k.Check(); changed || err != nil {
			loaded(changed, err)
		}
	})
}

func (f TLSFiles) names() []string { return []string{f.Cert, f.Key, f.CA} }
