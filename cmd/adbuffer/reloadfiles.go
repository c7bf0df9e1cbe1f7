package main

import (
	"reflect"
	"slices"
	"strings"

	"adbuffer/internal/config"
)

// filesOf returns the files that a configuration names: certificates, keys,
// authorities, tokens. The keys of all of them end in _file.
func filesOf(cfg *config.Config) []string {
	var files []string
	collectFiles(reflect.ValueOf(cfg).Elem(), &files)
	slices.Sort(files)
	return slices.Compact(files)
}

func collectFiles(v reflect.Value, files *[]string) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			collectFiles(v.Index(i), files)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if value := v.Field(i); value.Kind() != reflect.String || !strings.HasSuffix(name, "_file") {
				collectFiles(value, files)
			} else if value.String() != "" {
				*files = append(*files, value.String())
			}
		}
	}
}
