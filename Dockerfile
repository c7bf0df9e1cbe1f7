# adbuffer as an image: one static binary, no shell, no root.
#
#   docker build -t adbuffer .
#   docker run --rm adbuffer demo --once
#   docker run -p 8080:8080 -e ADBUFFER_SERVER_LISTEN=:8080 -v "$PWD/config:/etc/adbuffer:ro" adbuffer
#
# A container's 127.0.0.1 is its own: what is to be reached from outside listens on
# ":8080", by the variable above or in the file. Podman and buildah need --format docker,
# since OCI images have no HEALTHCHECK. deploy/docker has a whole set-up to start from.

# The base images are arguments, for those who mirror or pin them by digest.
ARG BUILD_IMAGE=golang:1.26
ARG RUN_IMAGE=scratch

# Built on the builder's own platform for the one that is asked for (--platform
# linux/arm64): Go compiles for others, which is quicker than to emulate them.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
ARG VERSION=dev
ARG COMMIT=""
ARG TARGETOS
ARG TARGETARCH
# CGO_ENABLED=0: an empty image has no C library; names are resolved by Go's own resolver.
# -trimpath: the same sources give the same binary, wherever it is built.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath \
      -ldflags "-s -w -X adbuffer/internal/app/app.Version=${VERSION} -X adbuffer/internal/app/app.Commit=${COMMIT}" \
      -o /out/adbuffer ./cmd/adbuffer
# All that the binary needs of a file system: the authorities that SSPs' certificates are
# verified with, and /tmp, where the demo keeps a file. No time zones: logs are in UTC.
RUN mkdir -p /out/etc/ssl/certs \
 && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
 && mkdir -m 1777 /out/tmp

FROM ${RUN_IMAGE}
ARG VERSION=dev
ARG COMMIT=""
LABEL org.opencontainers.image.title="adbuffer" \
      org.opencontainers.image.description="Forwards ad requests to SSPs over keep-alive connection pools" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /out/ /
# A number, since there is no /etc/passwd: nonroot, as in common base images.
USER 65532:65532
ENV ADBUFFER_CONFIG=/etc/adbuffer/adbuffer.yaml
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
# The start period is that of admin.warmup_timeout and a little more.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 CMD ["/adbuffer", "health"]
ENTRYPOINT ["/adbuffer"]
CMD ["serve"]
