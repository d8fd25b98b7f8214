"""A training loop of TensorFlow with tf.function, a tf.data pipeline and a GradientTape."""

import tensorflow as tf

tf.random.set_seed(0)
dataset = (
    tf.data.Dataset.from_tensor_slices(
        (tf.random.normal((6000, 64)), tf.random.uniform((6000,), maxval=5, dtype=tf.int32))
    )
    .shuffle(1000)
    .batch(100)
    .prefetch(tf.data.AUTOTUNE)
)
weights = [tf.Variable(tf.random.normal((64, 256), stddev=0.1)), tf.Variable(tf.random.normal((256, 5), stddev=0.1))]
optimizer = tf.keras.optimizers.SGD(0.05)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = tf.nn.relu(x @ weights[0]) @ weights[1]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    gradients = tape.gradient(loss, weights)
    optimizer.apply_gradients(zip(gradients, weights))
    return loss


for epoch in range(5):
    mean = tf.keras.metrics.Mean()
    for features, labels in dataset:
        mean.update_state(train_step(features, labels))
    print(epoch, float(mean.result()))
