// MALLET as c14_tools.py asks for it: a chain with the weights of the other tools, and none beside them.
//     train TEXT MODEL variance dense|observed tolerance iterations    writes MODEL, and its weights to MODEL.txt
//     tag TEXT MODEL ANSWER                                            writes a label a line
import cc.mallet.fst.*;
import cc.mallet.optimize.LimitedMemoryBFGS;
import cc.mallet.pipe.Pipe;
import cc.mallet.pipe.iterator.LineGroupIterator;
import cc.mallet.types.*;
import java.io.*;
import java.nio.file.*;
import java.util.*;
import java.util.regex.Pattern;

public class MalletChain {
    static InstanceList read(Pipe pipe, String path) throws Exception {
        var list = new InstanceList(pipe);
        var text = Files.readString(Path.of(path)).replaceAll("(?m)^b ", ""); // the first column is Wapiti's
        list.addThruPipe(new LineGroupIterator(new StringReader(text), Pattern.compile("^\\s*$"), true));
        return list;
    }

    // A state for each label, and one to begin in: MALLET's own chains begin in a label before the first token.
    static CRF chain(Pipe pipe, InstanceList list, boolean dense, Set<String> pairs) {
        int n = pipe.getTargetAlphabet().size();
        var names = Arrays.copyOf(pipe.getTargetAlphabet().toArray(), n + 1, String[].class);
        var labels = Arrays.copyOf(names, n);
        names[n] = " begin";
        for (var one : list) {
            var y = (Sequence) one.getTarget();
            for (int t = 1; t < y.size(); t++) pairs.add(y.get(t - 1) + " " + y.get(t));
        }
        var crf = new CRF(pipe, null);
        for (var from : names) {
            var weights = new String[n][];
            for (int j = 0; j < n; j++) {
                var pair = from + " " + labels[j];
                if (dense && from != names[n]) pairs.add(pair);
                weights[j] = pairs.contains(pair) ? new String[] {labels[j], pair} : new String[] {labels[j]};
                if (pairs.contains(pair)) // no attribute has a weight there: its one weight is the default
                    crf.setFeatureSelection(crf.getWeightsIndex(pair), new FeatureSelection(pipe.getDataAlphabet()));
            }
            crf.addState(from, from == names[n] ? 0 : CRF.IMPOSSIBLE_WEIGHT, 0, labels, labels, weights);
        }
        if (dense) crf.setWeightsDimensionDensely();
        else crf.setWeightsDimensionAsIn(list, false);
        return crf;
    }

    static void train(String text, String model, double variance, boolean dense, double tolerance, int most)
            throws Exception {
        var pipe = new SimpleTagger.SimpleTaggerSentence2FeatureVectorSequence();
        var list = read(pipe, text);
        var pairs = new HashSet<String>();
        var crf = chain(pipe, list, dense, pairs);
        var objective = new CRFOptimizableByLabelLikelihood(crf, list) {
            protected double getExpectationValue() {
                double value = super.getExpectationValue();
                System.out.println("evaluation " + -(value + crf.getParameters().gaussianPrior(variance)));
                return value;
            }

            public void getValueGradient(double[] buffer) { // what the other tools lack stays 0
                super.getValueGradient(buffer);
                int at = 2 * crf.numStates();
                Arrays.fill(buffer, 0, at, 0);
                for (int i = 0; i < crf.getWeights().length; at += 1 + crf.getWeights(i++).numLocations())
                    if (!pairs.contains(crf.getWeightsName(i))) buffer[at] = 0;
            }
        };
        objective.setGaussianPriorVariance(variance);
        var optimizer = new LimitedMemoryBFGS(objective);
        optimizer.setTolerance(tolerance);
        try {
            optimizer.optimize(most);
        } catch (Exception e) { // as its trainer does
            System.out.println("stopped: " + e.getMessage());
        }
        System.out.println("evaluation " + -objective.getValue());
        try (var out = new ObjectOutputStream(new FileOutputStream(model))) { out.writeObject(crf); }
        try (var out = new PrintWriter(model + ".txt")) {
            for (int i = 0; i < crf.getWeights().length; i++) {
                var name = crf.getWeightsName(i);
                var w = crf.getWeights(i);
                if (pairs.contains(name)) out.println("pair " + name + " " + crf.getDefaultWeights()[i]);
                for (int k = 0; k < w.numLocations(); k++)
                    out.println("node " + pipe.getDataAlphabet().lookupObject(w.indexAtLocation(k)) + " " + name
                        + " " + w.valueAtLocation(k));
            }
        }
    }

    public static void main(String[] a) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        if (a[0].equals("train")) {
            var dense = a[4].equals("dense");
            train(a[1], a[2], Double.parseDouble(a[3]), dense, Double.parseDouble(a[5]), Integer.parseInt(a[6]));
            return;
        }
        var crf = (CRF) new ObjectInputStream(new FileInputStream(a[2])).readObject();
        crf.getInputPipe().setTargetProcessing(false);
        try (var out = new PrintWriter(a[3])) {
            for (var one : read(crf.getInputPipe(), a[1])) {
                var labels = crf.transduce((Sequence) one.getData());
                for (int t = 0; t < labels.size(); t++) out.println(labels.get(t));
                out.println();
            }
        }
    }
}
