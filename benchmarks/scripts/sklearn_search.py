"""Choose a model with scikit-learn: pipelines, a grid search over two processes, reports."""

from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def main():
    x, y = make_classification(n_samples=3000, n_features=40, n_informative=12, random_state=0)
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
    candidates = {
        "logistic": (
            make_pipeline(StandardScaler(), PCA(20), LogisticRegression()),
            {"logisticregression__C": [0.1, 1]},
        ),
        "forest": (RandomForestClassifier(random_state=0), {"n_estimators": [30, 60]}),
    }
    for name, (model, grid) in candidates.items():
        search = GridSearchCV(model, grid, cv=3, n_jobs=2)
        search.fit(x_train, y_train)
        print(name, search.best_params_, round(search.score(x_test, y_test), 3))
    print(classification_report(y_test, search.predict(x_test)))


if __name__ == "__main__":
    main()
