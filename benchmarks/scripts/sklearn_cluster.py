"""Cluster and embed points with scikit-learn and NumPy, in two threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.neighbors import NearestNeighbors

rng = np.random.default_rng(7)
centres = rng.normal(scale=5, size=(12, 32))
points = np.concatenate([rng.normal(loc=centre, size=(1500, 32)) for centre in centres])
rng.shuffle(points)


def cluster(kind):
    model = kind(n_clusters=12, n_init=3, random_state=0)
    labels = model.fit_predict(points)
    return kind.__name__, float(model.inertia_), np.bincount(labels).max()


with ThreadPoolExecutor(2) as pool:
    for name, inertia, largest in pool.map(cluster, [KMeans, MiniBatchKMeans]):
        print(f"{name}: {inertia:.0f}, largest {largest}")

flat = TruncatedSVD(2, random_state=0).fit_transform(points)
distances, _ = NearestNeighbors(n_neighbors=10).fit(points).kneighbors(points[:3000])
print(flat.std(axis=0).round(2), distances[:, 1:].mean().round(3))
