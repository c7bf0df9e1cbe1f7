package openrtb

import "sync"

var pool = sync.Pool{New: func() any { return new(Facts) }}

// AcquireFacts returns memory for the facts about a body.
func AcquireFacts() *Facts { return pool.Get().(*Facts) }

// Release gives f back. The caller must not use it afterwards.
func (f *Facts) Release() { pool.Put(f) }
