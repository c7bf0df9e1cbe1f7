//go:build !linux

package rig

import "syscall"

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
