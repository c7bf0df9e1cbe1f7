package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	containers "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes an OCI image for all processors, as one archive. It has the files and settings of the
// Dockerfile, and the licenses. The authorities are those of Mozilla, from a module, so that go.sum pins them.
func (r *release) image(stage string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := r.imageFor(arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: containers.Descriptor{
			Platform: &containers.Platform{OS: "linux", Architecture: arch},
		}})
	}
	dir := filepath.Join(stage, "image")
	written, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = written.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
	}
	if err != nil {
		return err
	}
	return r.archive(dir, r.file("adbuffer_"+r.version+"_oci.tar"))
}

func (r *release) imageFor(arch string) (containers.Image, error) {
	content, err := r.imageFiles(arch)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: containers.History{Created: containers.Time{Time: r.time}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.imageConfig(arch, image))
}

// imageConfig says how the image runs, as the Dockerfile does.
func (r *release) imageConfig(arch string, image containers.Image) *containers.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		panic("BUG: " + err.Error()) // it is in memory
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, containers.Time{Time: r.time}
	config.Config = containers.Config{
		User: "65532:65532", Env: []string{"ADBUFFER_CONFIG=/etc/adbuffer/adbuffer.yaml"}, Entrypoint: []string{"/adbuffer"}, Cmd: []string{"serve"}, StopSignal: "SIGTERM",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "9090/tcp": {}},
		Healthcheck:  &containers.HealthConfig{Test: []string{"CMD", "/adbuffer", "health"}, Interval: 10 * time.Second, Timeout: 3 * time.Second, StartPeriod: 15 * time.Second, Retries: 3},
		Labels: map[string]string{
			"org.opencontainers.image.title": "adbuffer", "org.opencontainers.image.description": "Forwards ad requests to SSPs over keep-alive connection pools",
			"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": ownLicense,
		},
	}
	return config
}

// imageFiles returns the files of the image as a tar archive.
func (r *release) imageFiles(arch string) ([]byte, error) {
	binary, err := os.ReadFile(r.binary(arch))
	if err != nil {
		return nil, err
	}
	licenses, err := os.ReadFile(r.licenses())
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name    string
		mode    int64
		content []byte // nil = a folder
	}{
		{"adbuffer", 0o755, binary},
		{"etc/", 0o755, nil}, {"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil}, {"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
		{"licenses.txt", 0o644, licenses}, {"tmp/", 0o1777, nil},
	} {
		if err := r.add(w, f.name, f.mode, f.content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// add adds a file to an archive, or a folder if its name ends with a slash.
func (r *release) add(w *tar.Writer, name string, mode int64, content []byte) error {
	h := &tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: r.time, Typeflag: tar.TypeReg}
	if content == nil {
		h.Typeflag = tar.TypeDir
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// authorities returns the certificates that sign those of SSPs. An authority that is trusted with a
// constraint is left out, since a file of certificates cannot express it.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) //nolint:errcheck // a buffer has no errors
		}
	}
	return b.Bytes()
}

// archive writes a folder as a tar archive.
func (r *release) archive(dir, file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error { // sorted by name
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return r.add(w, name+"/", 0o755, nil)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return r.add(w, name, 0o644, content)
	})
	if err != nil {
		return err
	}
	return w.Close()
}
