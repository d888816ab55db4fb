package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push copies the image of an OCI layout into an ECR repository, by its digest,
// without Docker.
func push(ctx context.Context, config aws.Config, repository, folder string) error {
	login, err := ecrLogin(ctx, config)
	if err != nil {
		return err
	}
	return pushTo(repository, folder, remote.WithContext(ctx), remote.WithAuth(login))
}

func pushTo(repository, folder string, options ...remote.Option) error {
	image, err := imageOf(folder)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("read the image %s: %w", folder, err)
	}
	ref, err := name.NewDigest(repository + "@" + digest.String())
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	if _, err := remote.Head(ref, options...); err == nil {
		fmt.Printf("image %s is there\n", ref)
		return nil
	}
	if err := remote.Write(ref, image, options...); err != nil {
		return fmt.Errorf("push the image %s: %w", ref, err)
	}
	fmt.Printf("image %s pushed\n", ref)
	return nil
}

// imageOf returns the one image of an OCI layout.
func imageOf(folder string) (v1.Image, error) {
	path, err := layout.FromPath(folder)
	if err != nil {
		return nil, fmt.Errorf("read the image %s (make image builds it): %w", folder, err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("read the image %s: %w", folder, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the image %s: %w", folder, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("read the image %s: it holds %d images, not one", folder, len(manifest.Manifests))
	}
	return path.Image(manifest.Manifests[0].Digest)
}

// ecrLogin gets the registry's short-lived password.
func ecrLogin(ctx context.Context, config aws.Config) (authn.Authenticator, error) {
	out, err := ecr.NewFromConfig(config).GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return nil, fmt.Errorf("log in to ECR: %w", err)
	}
	if len(out.AuthorizationData) == 0 || out.AuthorizationData[0].AuthorizationToken == nil {
		return nil, errors.New("log in to ECR: it gave no token")
	}
	text, err := base64.StdEncoding.DecodeString(*out.AuthorizationData[0].AuthorizationToken)
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok {
		return nil, errors.New("log in to ECR: its token cannot be read")
	}
	return &authn.Basic{Username: user, Password: password}, nil
}
