//go:build !linux

package socket

// HangUps tells when peers close their connections: nothing here, where requests of
// clients that have left end at their deadlines.
type HangUps struct{}

// NewHangUps returns nil, which has all methods.
func NewHangUps() (*HangUps, error) { return nil, nil }

// Add does nothing.
func (*HangUps) Add(*Conn, func()) {}

// Remove does nothing.
func (*HangUps) Remove(*Conn) {}

// Close does nothing.
func (*HangUps) Close() error { return nil }
