//go:build !linux

package rig

import (
	"errors"
	"syscall"
)

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// LimitFiles limits the descriptors of the process. It needs Linux.
func (p *Process) LimitFiles(int) (restore func()) {
	p.rig.Check(errors.ErrUnsupported)
	return nil
}
