"""Permutations as linear maps."""

from itertools import permutations

import numpy as np

from pm_evidence.targets.model.exchangeable import Relabelling

MAPS = np.array([np.eye(3)[list(order)] for order in permutations(range(3))])


def test_images_of_every_row():
    x = np.arange(6.0).reshape(2, 3)
    images = Relabelling(("mean",), MAPS).images(x)
    assert images.shape == (6, 2, 3)
    for image, each in zip(images, MAPS, strict=True):
        np.testing.assert_array_equal(image, [each @ row for row in x])


def test_shuffled_labels_are_equally_frequent_and_in_random_order():
    x = np.tile(np.arange(3.0), (601, 1))
    shuffled = Relabelling(("mean",), MAPS).shuffled(x, np.random.default_rng(1))
    orders, counts = np.unique(shuffled, axis=0, return_counts=True)
    assert len(orders) == 6 and set(counts) == {100, 101}
    assert len(np.unique(shuffled[:10], axis=0)) > 1
